"""A plain loop over Anthropic's client."""

from anthropic import Anthropic
from cases import SCHEMA, SYSTEM, add, multiply, serve

FUNCTIONS = {each.__name__: each for each in (add, multiply)}
TOOLS = [
    {"name": name, "description": each.__doc__, "input_schema": SCHEMA}
    for name, each in FUNCTIONS.items()
]


def play(case, session):
    client = Anthropic(base_url=session["anthropic_base_url"], api_key=session["api_key"])
    messages = [{"role": "user", "content": case["input"]}]
    while True:
        reply = client.messages.create(
            model=session["model"], max_tokens=1000, system=SYSTEM, messages=messages, tools=TOOLS
        )
        uses = [block for block in reply.content if block.type == "tool_use"]
        if not uses:
            return reply.content[-1].text
        messages.append({"role": "assistant", "content": reply.content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": use.id,
                "content": FUNCTIONS[use.name](**use.input),
            }
            for use in uses
        ]
        messages.append({"role": "user", "content": results})


serve(play)
