"""Reading the record of who did what, and whether it is whole."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pydantic import Field

from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, Nothing, Role, operation
from sparring.operations.record.trail import trail_of


class ShowTrail(Frozen):
    count: int = Field(default=20, ge=1, le=100_000, description="the last so many")
    who: str = Field(default="", description="of one caller only")
    refused: bool = Field(default=False, description="refusals only")


class Trail(Frozen):
    file: str
    entries: tuple[dict[str, Any], ...] = Field(description="the newest last")


class VerifyTrail(Nothing):
    expect: str = Field(
        default="", description="a digest that you kept: it must still be in the record"
    )


class VerifiedTrail(Frozen):
    file: str
    ok: bool
    entries: int
    digest: str = Field(description="of the last entry; keep it elsewhere, to hold against later")
    faults: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = Field(
        default=(), description="calls whose process died before it could say what came of them"
    )


@operation("trail.show", role=Role.OWNER, changes_state=False, forms=Forms(cli="audit show"))
def show_trail(request: ShowTrail, caller: Caller) -> Trail:
    """Who did what, and what was refused to whom, the newest last."""
    chain = trail_of(caller.runs)
    wanted = (
        each
        for each in chain.backwards()
        if (not request.who or each.get("who") == request.who)
        and (not request.refused or each.get("outcome") == "refused")
    )
    entries = list(islice(wanted, request.count))[::-1]
    return Trail(file=str(chain.path), entries=tuple(entries))


@operation("trail.verify", role=Role.OWNER, changes_state=False, forms=Forms(cli="audit verify"))
def verify_trail(request: VerifyTrail, caller: Caller) -> VerifiedTrail:
    """Whether the record is whole: no entry changed, none missing."""
    chain = trail_of(caller.runs)
    checked = chain.verify()
    faults = [f"entry {each.number}: {each.message}" for each in checked.faults]
    asked: dict[str, str] = {}
    digests: set[str] = set()
    for each in chain.backwards():
        digests.add(str(each["digest"]))
        call = str(each.get("call"))
        if each.get("outcome") != "asked":
            asked[call] = ""
        elif call not in asked:
            asked[call] = f"{each.get('who')}: {each.get('verb')} (entry {each['number']})"
    notes = [told for told in asked.values() if told]
    if checked.is_torn:
        notes.append("the last line is no whole entry: its writer was killed, or it was added")
    if request.expect and request.expect not in digests:
        faults.append(f"the entry with digest {request.expect[:16]}… is not there any more")
    return VerifiedTrail(
        file=str(chain.path),
        ok=not faults,
        entries=checked.entries,
        digest=checked.digest,
        faults=tuple(faults),
        unanswered=tuple(notes),
    )
