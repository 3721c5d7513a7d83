"""Small tasks in a shell, judged by what is left in the workspace.

Commands run in a sandbox. The verifier is a measure: it lives in Sparring's own process, looks
at the files when the rollout is over, and its data is nowhere in the sandbox.
"""

from agents import Agent

from sparring import Environment, Suite, call, failed, measure, passed, worked_example

COLOURS = ["red", "green", "blue", "grey", "brown", "white", "black", "amber"]
ANIMALS = ["cat", "dog", "owl", "fox", "bee", "hen", "ant", "bat"]


def tasks() -> list[dict]:
    """Each with its files before and the one that is wanted after."""
    found = []
    for number, colour in enumerate(COLOURS):
        for place, animal in enumerate(ANIMALS):
            stem, count = f"{colour}_{animal}", (number * 7 + place * 3) % 9 + 2
            name, log = f"{stem}.txt", f"{stem}.log"
            lines = "".join(f"{colour} {n}\n" for n in range(count))
            found += [
                {"do": f"Write the word {colour} into {name}.", "file": name, "text": colour},
                {"do": f"Copy {log} to {name}.", "file": name, "text": lines.strip(),
                 "files": {log: lines}},
                {"do": f"Count the lines of {log} into {name}.", "file": name,
                 "text": str(count), "files": {log: lines}},
            ]  # fmt: skip
    return found


@measure
def did_the_task(rollout):
    """The file that was asked for is there, and says what it should."""
    task, workspace = rollout.case.fields, rollout.world
    if not workspace.has(task["file"]):
        return failed(f"there is no {task['file']}")
    said = " ".join(workspace.read(task["file"]).split())
    if said.split(" ")[0 : len(task["text"].split())] == task["text"].split():
        return passed(f"{task['file']} says {task['text'][:40]!r}")
    return failed(f"{task['file']} says {said[:40]!r}, not {task['text'][:40]!r}")


@measure
def kept_the_rest(rollout):
    """Files that were there before are there still, unchanged."""
    for name, text in rollout.case.fields.get("files", {}).items():
        if not rollout.world.has(name) or rollout.world.read(name) != text:
            return failed(f"{name} was changed")
    return passed("nothing else was touched")


# Tasks done right: a small model copies what it sees better than what it is told. The commands
# need a sandbox, so their results are stated.
EXAMPLES = [
    worked_example(
        task, call("run_shell", command=command).returning("(it printed nothing)"), answer="Done."
    )
    for task, command in (
        ("Write the word pink into old_elk.txt.", "echo pink > old_elk.txt"),
        ("Count the lines of big_yak.log into big_yak.txt.", "wc -l < big_yak.log > big_yak.txt"),
        ("Copy tall_emu.log to tall_emu.txt.", "cp tall_emu.log tall_emu.txt"),
    )
]


class Terminal(Environment):
    """Tasks in a shell, each done by one command and judged by its files."""

    needs_sandbox = True
    measures = (did_the_task, kept_the_rest)
    examples = EXAMPLES
    weights = {"kept_the_rest": 0.2}
    settings = {"max_turns": 2, "max_completion_length": 192}

    def agent(self) -> Agent:
        return Agent(
            name="clerk", instructions="Do the task with one shell command.", model="smollm2"
        )

    def suite(self) -> Suite:
        return Suite.from_records(
            tasks(),
            input="do",
            expected="text",
            shares={"training": 0.6, "validation": 0.2, "held-out": 0.2},
        )

    def world(self, case):
        return self.workspace(case.fields.get("files"), tools=("run_shell", "read_file"))
