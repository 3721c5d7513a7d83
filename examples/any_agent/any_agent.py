"""A calculator agent that is a plain loop over an OpenAI client: no framework at all."""

import json

from openai import AsyncOpenAI

from sparring import Case, Environment, Suite
from sparring.measures import numeric, tool_called

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.capitalize()} two whole numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
    for name in ("add", "multiply")
]


def use(tool: str, arguments: str) -> str:
    """Run one tool call; an error is a result that the model reads."""
    try:
        numbers = json.loads(arguments)
        if tool == "add":
            return str(numbers["a"] + numbers["b"])
        if tool == "multiply":
            return str(numbers["a"] * numbers["b"])
        return f"there is no tool {tool}"
    except (ValueError, KeyError, TypeError) as error:
        return f"{tool} failed: {error!r}"


async def calculate(client: AsyncOpenAI, model: str, question: str) -> str:
    """The agent: it calls tools until the model answers without one."""
    messages = [
        {"role": "system", "content": "You calculate with the tools."},
        {"role": "user", "content": question},
    ]
    while True:
        completion = await client.chat.completions.create(
            model=model, messages=messages, tools=TOOLS
        )
        reply = completion.choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        messages.append(reply.model_dump(exclude_none=True))
        for call in reply.tool_calls:
            result = use(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


class AnyAgent(Environment):
    """Sums and products, calculated by an agent that knows nothing of Sparring."""

    model = "smollm2"
    measures = (numeric(), tool_called("add"))

    async def play(self, case: Case, session) -> str:
        async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:
            return await calculate(client, session.model, case.input)

    def suite(self) -> Suite:
        pairs = [(a, b) for a in range(10, 60, 3) for b in range(11, 60, 2)]
        return Suite.from_records(
            [{"question": f"What is {a} + {b}?", "answer": a + b} for a, b in pairs],
            input=lambda row: row["question"],
            expected=lambda row: row["answer"],
        )
