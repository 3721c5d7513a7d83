"""`python -m sparring.surfaces.verbs`: prints the docs page that lists every verb.

The page is generated from the registry of operations, so it cannot list a verb that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_verbs(), "", _FIELDS.rstrip(), *_arguments(), ""])


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


if __name__ == "__main__":
    print(page(), end="")
