"""How rollouts become gradients, one module per rule. No rule knows an engine.

A rule turns what a step's rollouts earned into a number per token: `group_relative` gives each
token the advantage of its rollout, `tool_results` weighs the tokens of tool results in a second
loss. A new rule is a module here and a line in `learning/streams.py`.
"""
