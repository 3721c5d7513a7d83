"""Operations as tools for AI agents: schemas, calls, and answers of limited length.

MCP, the agents SDK and plain function schemas all serve the same tools.
"""
