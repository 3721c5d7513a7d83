"""Operations over HTTP, and the app in the browser that calls them."""
