"""A plain loop over OpenAI's client."""

import json

from cases import SCHEMA, SYSTEM, add, multiply, serve
from openai import OpenAI

FUNCTIONS = {each.__name__: each for each in (add, multiply)}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": each.__doc__, "parameters": SCHEMA},
    }
    for name, each in FUNCTIONS.items()
]


def play(case, session):
    client = OpenAI(base_url=session["base_url"], api_key=session["api_key"])
    messages = [{"role": "system", "content": SYSTEM}, *case["messages"]]
    while True:
        completion = client.chat.completions.create(
            model=session["model"], messages=messages, tools=TOOLS
        )
        reply = completion.choices[0].message
        if not reply.tool_calls:
            return reply.content
        messages.append(reply)
        for call in reply.tool_calls:
            result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


serve(play)
