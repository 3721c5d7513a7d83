"""What the agents of all frameworks share: the tools, and the protocol of reused processes."""

import json
import sys

SYSTEM = "You calculate with the tools."


def add(a: int, b: int) -> str:
    """Add two whole numbers."""
    return str(a + b)


def multiply(a: int, b: int) -> str:
    """Multiply two whole numbers."""
    return str(a * b)


SCHEMA = {
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "type": "object",
    "additionalProperties": False,
}


def serve(play):
    """Play case after case: one line of JSON in, one out.

    What the framework prints goes to standard error. Frameworks redirect `sys.stdout` from their
    threads, so an answer printed there may get lost.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        given = json.loads(line)
        try:
            result = {"answer": play(given["case"], given["session"])}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)
