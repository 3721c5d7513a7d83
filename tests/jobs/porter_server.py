"""An MCP server over stdio with the tools of tests.jobs.real_agents."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("porter")


@server.tool()
def ring() -> str:
    """Ring the bell."""
    return "ding dong"


@server.tool()
def knock() -> str:
    """Knock at the door."""
    return "who is there"


if __name__ == "__main__":
    server.run()
