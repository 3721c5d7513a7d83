"""`python -m sparring.surfaces.verbs`: the page of the docs that lists every verb.

A verb is what an operation is registered as, so that this page cannot say more than there is.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparring.operations.every import every_operation
from sparring.operations.operation import Forms, Role

_HEAD = """\
# Every verb, on every surface

<!-- made by `python -m sparring.surfaces.verbs`; do not edit -->

Each is one operation, with the same checks behind it however it is called. The role says who may:
a *viewer* looks, an *operator* is an AI agent inside the project's [locks and budget](settings.md),
the *owner* is a person at the command line. Calls that change something are
[on record](operating.md#the-record).
"""


def page() -> str:
    return "\n".join([_HEAD, *_verbs(), "", *_names(), ""])


def _verbs() -> Iterator[str]:
    yield "| what it does | command | tool | Python | role | changes something |"
    yield "|---|---|---|---|---|---|"
    for each in every_operation().values():
        forms = each.forms
        if forms == Forms():
            continue
        cells = [
            each.summary.replace("|", "\\|"),
            f"`sparring {forms.cli}`" if forms.cli else "",
            f"`{forms.tool}`" if forms.tool else "",
            f"`{forms.python}`" if forms.python else "",
            each.role.name.lower() if each.role < Role.OWNER else "owner",
            "yes" if each.changes_state else "",
        ]
        yield f"| {' | '.join(cells)} |"


def _names() -> Iterator[str]:
    yield "## If you look for"
    yield ""
    yield "| name elsewhere | here |"
    yield "|---|---|"
    known = [
        (name, each.forms) for each in every_operation().values() for name in each.forms.known_as
    ]
    for name, forms in sorted(known, key=lambda pair: pair[0]):
        here = [f"`{forms.tool}`"] if forms.tool else []
        here += [f"`sparring {forms.cli}`"] if forms.cli else []
        yield f"| `{name}` | {', '.join(here)} |"


if __name__ == "__main__":
    print(page(), end="")
