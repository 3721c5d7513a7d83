"""Planning a run, changing the plan, and starting exactly that.

A plan is made by the same steps that a start takes, up to the spec. Starting it takes them again
and compares: what a person has locked, what the source says, what the budget allows may all have
changed, and then the plan says something that would not happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, NotPermitted, PlanRefused, SettingError
from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.specs import EvalSpec, Frozen
from sparring.contracts.training import TrainSpec
from sparring.operations.doctor import Finding
from sparring.operations.evaluating import evaluation_of
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.outgrown import asked_of, settings_of
from sparring.operations.plans.estimating import Cost, Done, cost_of, done_before
from sparring.operations.plans.fingerprints import fingerprints
from sparring.operations.plans.kept import PlanRecord, Plans, changes, digest_of, plain
from sparring.operations.plans.needs import missing_for
from sparring.operations.proving import proof_of, within
from sparring.operations.run_control import read_run_spec
from sparring.operations.settling import Settled, settle
from sparring.operations.starting import Started, new_name, start
from sparring.operations.training import begin_training, training_of
from sparring.run_folder.files import read_told
from sparring.runs.finding import find_run
from sparring.settings.fields import known_names, nearest
from sparring.settings.names import flatten, nested

_OWN_FIELDS = {"train": "prove", "eval": "cases"}  # of a plan, besides the settings


class PlanRun(Frozen):
    environment: str = Field(default="", description="its name; may be left out with `like`")
    kind: Literal["train", "eval"] = Field(
        default="train", description="train the model, or only play validation cases and judge"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="what is to be different from the project's values, by dotted name, as in "
        "{'temperature': 0.9, 'config.level': 2}; null turns off what can be off",
    )
    like: str = Field(
        default="", description="a run: what was asked for it is asked again, under `settings`"
    )
    prove: bool = Field(
        default=True, description="after a training, prove it on held-out cases by a run of its own"
    )
    cases: int | None = Field(default=None, ge=1, description="of an evaluation: at most so many")


class PlanQuery(Frozen):
    plan: str = Field(description="the id of a plan")


class RevisePlan(PlanQuery):
    field: str = Field(description="dotted name of a setting, as in temperature or config.level")
    value: Any = Field(description="what it is to be; null turns off what can be off")


class LastCheck(Frozen):
    run: str
    verdict: str
    why: ForeignText = ""


class Plan(Frozen):
    """A run that could be started, exactly like this."""

    plan: str
    kind: str
    environment: str
    model: str
    settings: MixedTable = Field(description="all that is not a default, by dotted name")
    cost: Cost
    ready: bool = Field(description="whether nothing is missing")
    missing: tuple[Finding, ...] = ()
    proves: bool = Field(description="whether a proof follows it")
    last_check: LastCheck | None = Field(
        default=None, description="what the newest check of this environment and model found"
    )
    changes: str = Field(default="", description="what differs from the plan that this revises")
    may_change: Annotated[tuple[str, ...], MIXED] = Field(
        default=(), description="fields that you may still change"
    )
    revises: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """What a request comes to, now."""

    settled: Settled
    spec: TrainSpec | EvalSpec
    proves: bool

    def resolved(self) -> dict[str, Any]:
        """All that makes the run what it would be."""
        proof = None
        if self.proves and isinstance(self.spec, TrainSpec):
            proof = within(self.settled.budget, proof_of("", self.spec)).model_dump(mode="json")
        return plain(
            {
                "sparring": version("sparring"),
                "spec": self.spec.model_dump(mode="json"),
                "proof": proof,
                "budget": self.settled.budget.model_dump(mode="json"),
                "files": fingerprints(self.settled),
            }
        )


@operation(
    "plan.make",
    role=Role.OPERATOR,
    changes_state=True,
    forms=Forms(
        cli="plan make", tool="plan_run", known_as=("configure", "dry_run", "estimate_cost")
    ),
)
def plan_run(request: PlanRun, caller: Caller) -> Plan:
    """Say what a run would be, what it would cost and what is missing, without starting it.

    Settings are resolved and held against locks and budget. The answer's `plan` is for start_run;
    revise_plan changes one field of it.
    """
    return _planned(_without_like(request, caller), caller)


@operation(
    "plan.revise",
    role=Role.OPERATOR,
    changes_state=True,
    forms=Forms(cli="plan revise", tool="revise_plan", known_as=("edit_config", "set_config")),
)
def revise_plan(request: RevisePlan, caller: Caller) -> Plan:
    """Make a new plan from one that is there, with one field changed."""
    record = _own_plan(request.plan, caller)
    asked = PlanRun.model_validate(record.asked)
    changed = _with(asked, request.field, request.value, caller)
    return _planned(changed, caller, revises=record)


@operation(
    "plan.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="plan start", tool="start_run", known_as=("start_training", "launch")),
)
def start_planned(request: PlanQuery, caller: Caller) -> Started:
    """Start the run of a plan: exactly that, and once.

    It is refused if anything that the plan rests on has changed since: settings, locks, budget,
    source, data. The run goes on by itself; wait_for_run tells how it gets on.
    """
    record = _own_plan(request.plan, caller)
    _refuse_used(record, caller)
    prospect = _as_planned(record, caller)
    _refuse_missing(prospect)
    spec = prospect.spec.model_copy(update={"plan": record.plan})
    name = new_name(spec)
    Plans(caller.runs).claim(record.plan, name)
    if isinstance(spec, TrainSpec):
        return begin_training(spec, prospect.settled, caller, proves=prospect.proves, name=name)
    return start(spec, caller, runs_at_once=prospect.settled.budget.runs_at_once, name=name)


# ---------------------------------------------------------------------- inside


def _planned(request: PlanRun, caller: Caller, revises: PlanRecord | None = None) -> Plan:
    prospect = _prospect(request, caller)
    first = revises.plan if revises else ""
    settled = prospect.settled
    missing = missing_for(settled)
    before = done_before(settled, caller)
    ready = all(each.standing != "missing" for each in missing)
    role = caller.role.name.lower()
    asked = request.model_dump(mode="json")
    record = Plans(caller.runs).keep(caller.name, role, asked, prospect.resolved(), first)
    return Plan(
        plan=record.plan,
        kind=request.kind,
        environment=settled.found.name,
        model=str(settled.values.get("model") or "the agent's own model"),
        settings=dict(sorted(settings_of(prospect.spec).items())),
        cost=cost_of(prospect.spec, before),
        ready=ready,
        missing=missing,
        proves=prospect.proves,
        last_check=_last_check(before),
        changes=changes(revises.resolved, record.resolved) if revises else "",
        may_change=() if revises else tuple(_free_fields(settled)),
        revises=first,
        next="start_run starts it; revise_plan changes a field" if ready else "see `missing`",
    )


def _as_planned(record: PlanRecord, caller: Caller) -> _Prospect:
    """What a plan comes to now, by whoever made it; refused where that is something else."""
    role = min(caller.role, Role[record.role.upper()])
    planner = replace(caller, role=role, name=record.author)
    prospect = _prospect(PlanRun.model_validate(record.asked), planner)
    now = prospect.resolved()
    if digest_of(now) != digest_of(record.resolved):
        changed = changes(record.resolved, now) or "something"
        raise PlanRefused(
            f"plan {record.plan} no longer says what would happen: {changed} changed since; plan "
            "the run again and look at what is different"
        )
    return prospect


def _refuse_used(record: PlanRecord, caller: Caller) -> None:
    if run := Plans(caller.runs).started_as(record.plan):
        told = f"was started already, as run {run}"
        if not (caller.runs / run).is_dir():
            told = f"was to become run {run} when its process died on the way, and nothing runs"
        raise PlanRefused(f"plan {record.plan} {told}; a plan is used once: make another")


def _refuse_missing(prospect: _Prospect) -> None:
    missing = [each for each in missing_for(prospect.settled) if each.standing == "missing"]
    if missing:
        told = "; ".join(f"{each.what}: {each.found} ({each.fix})" for each in missing)
        raise PlanRefused(f"something is missing here, which is for the owner to mend: {told}")


def _prospect(request: PlanRun, caller: Caller) -> _Prospect:
    if not request.environment:
        raise InvalidInput("say which environment, or name a run that it is to be like")
    if request.kind == "train" and request.cases is not None:
        raise InvalidInput("cases is for an evaluation; a training goes by max_steps")
    settled = settle(request.environment, request.kind, _tables(request.settings), caller)
    if request.kind == "train":
        return _Prospect(settled, training_of(settled), request.prove)
    return _Prospect(settled, evaluation_of(settled, Split.VALIDATION, request.cases), False)


def _last_check(before: Sequence[Done]) -> LastCheck | None:
    for done in before:
        told = read_told(done.folder.summary) if done.kind == "check" else {}
        if verdict := told.get("verdict"):
            why = str(told.get("why") or "")
            return LastCheck(run=done.folder.id, verdict=str(verdict), why=why)
    return None


def _without_like(request: PlanRun, caller: Caller) -> PlanRun:
    """What was asked for another run, with what is asked now over it. All else is as the project
    has it today."""
    if not request.like:
        return request
    spec = read_run_spec(find_run(caller.runs, request.like))
    if not isinstance(spec, TrainSpec | EvalSpec):
        raise InvalidInput(f"a run of kind {spec.kind} is not planned; like means a training")
    if request.environment not in ("", spec.environment):
        raise InvalidInput(f"{request.like} is of {spec.environment}: leave environment out")
    settings = nested({**asked_of(spec), **dict(flatten(_tables(request.settings)))})
    cases = spec.cases if isinstance(spec, EvalSpec) else None
    update = {
        "environment": spec.environment,
        "kind": spec.kind,
        "settings": settings,
        "cases": request.cases or cases,
        "like": "",
    }
    return request.model_copy(update=update)


def _tables(settings: dict[str, Any]) -> dict[str, Any]:
    """`{"config.level": 2}` is as good as a table: answers write names with dots, too."""
    told: dict[str, Any] = plain(settings)
    for name in [each for each in told if "." in each]:
        _put(told, name.split("."), told.pop(name))
    return told


def _put(table: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = table.get(part)
        table[part] = inner if isinstance(inner, dict) else {}
        table = table[part]
    table[path[-1]] = value


def _with(asked: PlanRun, field: str, value: Any, caller: Caller) -> PlanRun:
    if field == _OWN_FIELDS[asked.kind]:
        return PlanRun.model_validate({**asked.model_dump(), field: value})
    parts = field.split(".")
    if parts[0] not in known_names(asked.kind) or not all(parts):
        free = _free_fields(settle(asked.environment, asked.kind, {}, caller))
        hint = nearest(field, known_names(asked.kind))
        raise SettingError(
            f"a plan of kind {asked.kind} has no field {field[:80]!r}; {hint}{' ' * bool(hint)}you "
            f"may change {', '.join(free)}"
        )
    settings = _tables(asked.settings)
    _put(settings, parts, value)
    return asked.model_copy(update={"settings": settings})


def _free_fields(settled: Settled) -> list[str]:
    """Settings without a lock; tables by the name of the table."""
    locked = {name for name, each in settled.resolved.settings.items() if each.lock is not None}
    names = [name for name in settled.resolved.settings if name not in {*locked, "config"}]
    own = {name if name.startswith("config.") else name.split(".")[0] for name in names}
    return sorted({_OWN_FIELDS[settled.kind], *own})


def _own_plan(name: str, caller: Caller) -> PlanRecord:
    record = Plans(caller.runs).read(name)
    if record.author != caller.name and not caller.is_owner:
        raise NotPermitted(f"plan {record.plan} is {record.author}'s; make one of your own")
    return record
