"""`python -m sparring.surfaces.verbs`: prints the docs page that lists every verb.

The page is generated from the registry of operations, so it cannot list a verb that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparring.operations.operation import Forms, Role
from sparring.operations.registry import all_operations

_HEAD = """\
# Every verb, on every surface

<!-- made by `python -m sparring.surfaces.verbs`; do not edit -->

Each verb is one operation, and every surface runs the same checks. The role is the lowest one that
may call the verb: a *viewer* reads, an *operator* is an AI agent within the project's
[locks and budget](settings.md), the *owner* is the person who sets them. Calls that change
something are written to the [activity log](operating.md#activity-log).
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_verbs(), ""])


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


if __name__ == "__main__":
    print(page(), end="")
