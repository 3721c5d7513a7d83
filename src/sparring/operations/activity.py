"""Operations that read and verify the activity log."""

from __future__ import annotations

from itertools import islice

from pydantic import Field

from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.operations.activity_log import ActivityLog, CallOutcome
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation


class ShowActivity(Frozen):
    """Filters on the entries to show."""

    count: int = Field(
        default=20, ge=1, le=100_000, description="maximum number of entries, counted from the last"
    )
    who: str = Field(default="", description="only entries of this caller")
    refused: bool = Field(default=False, description="only refusals")


class Activity(Frozen):
    """Entries of the activity log."""

    file: str
    entries: tuple[JsonObject, ...] = Field(description="newest last")


class VerifyActivity(NoArguments):
    """An optional digest to verify the log against."""

    expect: str = Field(
        default="", description="a digest noted earlier, which the log must still contain"
    )


class VerifiedActivity(Frozen):
    """The result of verifying the activity log."""

    file: str
    ok: bool
    entries: int
    digest: str = Field(description="of the last entry; store it elsewhere, for a later `expect`")
    faults: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = Field(
        default=(), description="calls without a logged outcome: running, or their process died"
    )


@operation("activity.show", role=Role.OWNER, changes_state=False, forms=Forms(cli="activity show"))
def show_activity(request: ShowActivity, caller: Caller) -> Activity:
    """Show the calls in the activity log, with their callers and outcomes, newest last."""
    log = ActivityLog(caller.runs)
    matching = (
        entry
        for entry in log.backwards()
        if (not request.who or entry.get("who") == request.who)
        and (not request.refused or entry.get("outcome") == "refused")
    )
    entries = list(islice(matching, request.count))[::-1]
    return Activity(file=str(log.path), entries=tuple(entries))


@operation(
    "activity.verify", role=Role.OWNER, changes_state=False, forms=Forms(cli="activity verify")
)
def verify_activity(request: VerifyActivity, caller: Caller) -> VerifiedActivity:
    """Check that no entry of the activity log was changed or removed."""
    log = ActivityLog(caller.runs)
    verified = log.verify()
    faults = [f"entry {fault.number}: {fault.message}" for fault in verified.faults]
    open_calls: dict[str, str] = {}
    digests: set[str] = set()
    for entry in log.backwards():
        digests.add(str(entry["digest"]))
        call = str(entry.get("call"))
        if entry.get("outcome") != CallOutcome.REQUESTED:
            open_calls[call] = ""
        elif call not in open_calls:
            open_calls[call] = f"{entry.get('who')}: {entry.get('verb')} (entry {entry['number']})"
    unanswered = [text for text in open_calls.values() if text]
    if verified.is_torn:
        unanswered.append(
            "the last line is incomplete: its writer was killed, or somebody appended it"
        )
    if request.expect and request.expect not in digests:
        faults.append(f"the log no longer contains the entry with digest {request.expect[:16]}…")
    return VerifiedActivity(
        file=str(log.path),
        ok=not faults,
        entries=verified.entries,
        digest=verified.digest,
        faults=tuple(faults),
        unanswered=tuple(unanswered),
    )
