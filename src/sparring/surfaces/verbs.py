"""`python -m sparring.surfaces.verbs`: prints the docs page that lists every verb.

The page is generated from the registry of operations, so it cannot list a verb that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparring.contracts.kinds import KINDS
from sparring.operations.operation import Forms, Role, all_operations
from sparring.surfaces.cli.commands import FieldOption

_HEAD = """\
# Every verb, on every surface

<!-- made by `python -m sparring.surfaces.verbs`; do not edit -->

Each verb is one operation, and every surface runs the same checks. The role is the lowest one that
may call the verb: a *viewer* reads, an *operator* is an AI agent within the project's
[locks and budget](settings.md), the *owner* is the person who sets them. Calls that change
something are written to the [activity log](operating.md#activity-log).
"""
_FIELDS = """\
## Fields of each verb's request

Tools and the HTTP API take the field's name. Fields without a word for the command line are set
there by options of their own, which `--help` shows.
"""
_ANSWERS = """\
## Fields of JSON answers

With `--json`, a command prints one line with these fields. A command that follows a run prints the
run's summary, and `next`: commands to run next, by purpose. With `--detach`, it prints those of
`run started` instead. An error is `{"error": {"type", "message", "exit_code"}}`.
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join(
        [
            _HEAD,
            *_verbs(),
            "",
            _FIELDS.rstrip(),
            *_arguments(),
            "",
            _ANSWERS.rstrip(),
            "",
            *_answers(),
            "",
        ]
    )


def _verbs() -> Iterator[str]:
    yield "| what it does | command | tool | Python | role | changes something |"
    yield "|---|---|---|---|---|---|"
    for operation in all_operations().values():
        forms = operation.forms
        if forms == Forms():
            continue
        cells = [
            operation.summary.replace("|", "\\|"),
            f"`sparring {forms.cli}`" if forms.cli else "",
            f"`{forms.tool}`" if forms.tool else "",
            f"`{forms.python}`" if forms.python else "",
            operation.role.name.lower() if operation.role < Role.OWNER else "owner",
            "yes" if operation.changes_state else "",
        ]
        yield f"| {' | '.join(cells)} |"


def _arguments() -> Iterator[str]:
    for operation in all_operations().values():
        fields = operation.request.model_fields
        if not operation.forms.cli or not fields:
            continue
        yield from ("", f"### {operation.name}", "", "| field | command line | meaning |")
        yield "|---|---|---|"
        schema = operation.request.model_json_schema()
        for name, field in fields.items():
            typed = f"`{label}`" if (label := FieldOption(name, field, schema).label) else ""
            meaning = (field.description or "").replace("|", "\\|")
            yield f"| `{name}` | {typed} | {meaning} |"


def _answers() -> Iterator[str]:
    yield from ("| answer | fields |", "|---|---|")
    for kind in KINDS.values():
        more = ("proof", "next") if kind.name == "train" else ("next",)
        yield _answer(f"`{kind.name} --json`", (*kind.summary.model_fields, *more))
    started = all_operations()["train.start"].result
    yield _answer("run started", started.model_fields)
    for operation in all_operations().values():
        has_answer = operation.forms.cli not in ("", "chat")
        if has_answer and operation.result is not started:
            yield _answer(f"`{operation.forms.cli} --json`", operation.result.model_fields)


def _answer(command: str, fields: Iterable[str]) -> str:
    return f"| {command} | {', '.join(f'`{field}`' for field in fields)} |"


if __name__ == "__main__":
    print(page(), end="")
