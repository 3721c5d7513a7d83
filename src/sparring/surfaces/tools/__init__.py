"""Operations as tools for an AI agent: what each takes, and answers that fit its attention.

Whatever carries them (MCP, the agents SDK, a loop of one's own) adds nothing to what they do.
"""
