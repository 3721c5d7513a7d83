"""The command line, the MCP server and the agent tools: they parse requests for `operations` and
render the results. No logic lives here.
"""
