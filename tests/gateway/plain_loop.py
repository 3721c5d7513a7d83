"""A plain agent over an OpenAI client, which knows nothing of Sparring."""

import json

SYSTEM = "You calculate with the tools."


def use(name, arguments):
    """Run a tool as the SDK's agent does."""
    numbers = json.loads(arguments)
    return str(numbers["a"] + numbers["b"] if name == "add" else numbers["a"] * numbers["b"])


async def loop(client, model, messages, tools, *, stream=False):
    """Call tools until the model answers without one."""
    messages = [{"role": "system", "content": SYSTEM}, *messages]
    while True:
        reply = await (streamed if stream else completed)(client, model, messages, tools)
        if not reply.get("tool_calls"):
            return reply["content"]
        messages.append(reply)
        for call in reply["tool_calls"]:
            result = use(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def completed(client, model, messages, tools):
    completion = await client.chat.completions.create(model=model, messages=messages, tools=tools)
    return completion.choices[0].message.model_dump(exclude_none=True)


async def streamed(client, model, messages, tools):
    async with client.chat.completions.stream(
        model=model, messages=messages, tools=tools
    ) as stream:
        completion = await stream.get_final_completion()
    message = completion.choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
    return {"content": "", **message}
