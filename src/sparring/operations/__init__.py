"""One typed function per verb; surfaces turn them into commands, tools and routes."""
