"""Teach a small model to use a tool, on a CPU, in a few minutes. Install: see README.md."""

from agents import Agent, function_tool

from sparring import Suite, failed, measure, passed, train


@function_tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@measure
def right_sum(rollout):
    if rollout.tool_calls and rollout.answer.rstrip(".").endswith(f" {rollout.expected}"):
        return passed(f"used the tool and answered {rollout.expected}")
    return failed(f"no tool call, or not {rollout.expected}: {rollout.answer[:40]}")


def chat(a, b, answered=False):
    question = [{"role": "user", "content": f"What is {a} + {b}?"}]
    call = {"type": "function_call", "call_id": f"{a}", "name": "add"}
    call["arguments"] = f'{{"a": {a}, "b": {b}}}'
    result = {"type": "function_call_output", "call_id": f"{a}", "output": f"{a + b}"}
    answer = {"role": "assistant", "content": f"{a} + {b} = {a + b}"}
    return question + [call, result, answer] * answered


examples = chat(31, 45, answered=True) + chat(12, 60, answered=True)
sums = [(a, b) for a in range(10, 90, 4) for b in range(11, 90, 6)]
suite = Suite.from_records([{"input": examples + chat(*s), "expected": sum(s)} for s in sums])
agent = Agent(name="adder", instructions="You answer sums with the tool add.", tools=[add])

if __name__ == "__main__":
    settings = {"max_steps": 4, "num_generations": 8, "gradient_accumulation_steps": 1}
    settings |= {"lora": True, "learning_rate": 5e-4, "max_completion_length": 80, "max_turns": 3}
    result = train(agent, suite, [right_sum], model="smollm2", validation_cases=32, **settings)
    print(result)  # validation reward before and after
    print(result.generate(examples + chat(57, 26), repetition_penalty=1.0))
