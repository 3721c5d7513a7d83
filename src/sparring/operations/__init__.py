"""One typed function per verb. Surfaces turn them into a command line, tools and routes."""
