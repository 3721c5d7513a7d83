"""The command line, the tools for AI agents, and the web server.

Surfaces parse requests, call `operations` and render the results. They make no decisions.
"""
