"""Operations on plans: plan a run, revise, list, show and refuse plans, and start a run as planned.

Planning resolves a request to a spec, as starting a run does. Starting a plan resolves the request
again, and refuses the plan if settings, locks, budget, source or data have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.command_line import ENVIRONMENT, OnCommandLine
from sparring.contracts.errors import InvalidInput, NotPermitted, PlanRefused, SettingError
from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import EvalSpec, Frozen, Table
from sparring.contracts.summaries import CheckSummary
from sparring.contracts.training import TrainSpec
from sparring.operations.doctor import Finding
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.plans.estimating import Cost, Done, completed_before, cost_of
from sparring.operations.plans.fingerprints import fingerprints
from sparring.operations.plans.preflight import missing_for
from sparring.operations.plans.store import Plans, StoredPlan, changes, digest_of, plain
from sparring.operations.proving import proof_of, within
from sparring.operations.resolution import RunSettings, request_of, resolve_run, settings_of
from sparring.operations.starting import Started, new_name, start
from sparring.operations.training import begin_training
from sparring.run_folder.contents import find_summary, read_run_spec
from sparring.runs.finding import find_run
from sparring.settings.fields import known_names, nearest
from sparring.settings.layers import flatten, nested

_OWN_FIELDS = {"train": "prove", "eval": "cases"}  # fields of a plan that are not settings


class PlanRun(Frozen):
    """The run to plan."""

    environment: Annotated[str, ENVIRONMENT] = Field(
        default="", description="the environment's name; optional with `like`"
    )
    kind: Literal["train", "eval"] = Field(
        default="train",
        description="train: train the model; eval: play validation cases and judge them",
    )
    settings: Table = Field(
        default_factory=dict,
        description="changes to the project's values, by dotted name, as in "
        "{'temperature': 0.9, 'config.level': 2}; null turns an optional setting off",
    )
    like: str = Field(
        default="",
        description="a run to repeat: its kind, and the settings of its command, which `settings` "
        "overrides",
    )
    prove: bool = Field(
        default=True, description="start a proof on held-out cases after the training run"
    )
    cases: int | None = Field(
        default=None, ge=1, description="maximum number of cases of an evaluation"
    )


class PlanQuery(Frozen):
    """One plan."""

    plan: str = Field(description="the id of a plan")


class RevisePlan(PlanQuery):
    """One change to a plan."""

    field: str = Field(description="dotted name of a setting, as in temperature or config.level")
    value: Annotated[Any, OnCommandLine(help="the new value, as JSON or text")] = Field(
        description="the new value; null turns an optional setting off"
    )


class LastCheck(Frozen):
    """The verdict of the newest check."""

    run: str
    verdict: str
    why: ForeignText = ""


class Plan(Frozen):
    """A planned run: its settings, its cost, and what is missing."""

    plan: str
    kind: str
    environment: str
    model: str
    settings: MixedTable = Field(
        description="settings that differ from the defaults, by dotted name"
    )
    cost: Cost
    ready: bool = Field(description="true if no requirement is missing")
    missing: tuple[Finding, ...] = ()
    proves: bool = Field(description="true if a proof follows the training")
    last_check: LastCheck | None = Field(
        default=None, description="the newest check of this environment and model"
    )
    changes: str = Field(default="", description="names that differ from the revised plan")
    may_change: Annotated[tuple[str, ...], MIXED] = Field(
        default=(), description="fields that you may change; empty in a revision"
    )
    revises: str = ""
    next: str = ""


class ListPlans(Frozen):
    """The number of plans to list."""

    count: int = Field(default=50, ge=1, le=500, description="maximum number of plans")


class PlanLine(Frozen):
    """One plan of a list."""

    plan: str
    author: str
    role: str
    created: float
    kind: str
    environment: str
    settings: MixedTable = Field(default_factory=dict, description="settings in the request")
    revises: str = ""
    run: str = Field(default="", description="id of the run that it started")
    refused: ForeignText = Field(default="", description="the owner's reason for refusing it")
    is_refused: bool = False


class PlanList(Frozen):
    """Plans, newest first."""

    plans: tuple[PlanLine, ...]


class RefusePlan(PlanQuery):
    """The plan to refuse."""

    reason: str = Field(default="", max_length=500, description="shown to the plan's author")


@dataclass(frozen=True, slots=True)
class _Prospect:
    """The run that a request resolves to now."""

    run_settings: RunSettings
    spec: TrainSpec | EvalSpec
    proves: bool

    def resolved(self) -> JsonObject:
        """Return everything that determines the run, to store with the plan and compare later."""
        proof = None
        if self.proves and isinstance(self.spec, TrainSpec):
            proof = within(self.run_settings.budget, proof_of("", self.spec)).model_dump(
                mode="json"
            )
        return plain(
            {
                "sparring": version("sparring"),
                "spec": self.spec.model_dump(mode="json"),
                "proof": proof,
                "budget": self.run_settings.budget.model_dump(mode="json"),
                "files": fingerprints(self.run_settings),
            }
        )


@operation(
    "plan.make",
    role=Role.OPERATOR,
    changes_state=True,
    forms=Forms(cli="plan make", tool="plan_run"),
)
def plan_run(request: PlanRun, caller: Caller) -> Plan:
    """Plan a run without starting it: its settings, its cost, and what is missing.

    Settings are resolved and checked against locks and budget. Pass the `plan` of the answer to
    start_run, or to revise_plan to change one field.
    """
    return _make_plan(_expand_like(request, caller), caller)


@operation(
    "plan.revise",
    role=Role.OPERATOR,
    changes_state=True,
    forms=Forms(cli="plan revise", tool="revise_plan"),
)
def revise_plan(request: RevisePlan, caller: Caller) -> Plan:
    """Make a new plan from an existing one, with one field changed."""
    stored = _own_plan(request.plan, caller)
    planned = PlanRun.model_validate(stored.request)
    changed = _with_field(planned, request.field, request.value, caller)
    return _make_plan(changed, caller, revises=stored)


@operation(
    "plan.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="plan start", tool="start_run"),
)
def start_planned(request: PlanQuery, caller: Caller) -> Started:
    """Start the run of a plan, exactly as planned. A plan starts one run.

    The start is refused if settings, locks, budget, source or data have changed since the plan was
    made. The run continues in the background; wait_for_run reports its progress.
    """
    stored = _own_plan(request.plan, caller)
    _refuse_used(stored, caller)
    prospect = _resolve_again(stored, caller)
    _refuse_missing(prospect)
    spec = prospect.spec.model_copy(update={"plan": stored.plan})
    name = new_name(spec)
    _refuse_used(stored, caller)  # the owner may have refused the plan while it was resolved
    Plans(caller.runs).claim(stored.plan, name)
    budget = prospect.run_settings.budget
    if isinstance(spec, TrainSpec):
        return begin_training(spec, budget, caller, proves=prospect.proves, name=name)
    return start(spec, caller, runs_at_once=budget.runs_at_once, name=name)


@operation("plan.list", role=Role.OPERATOR, changes_state=False)
def list_plans(request: ListPlans, caller: Caller) -> PlanList:
    """List plans, newest first. The owner sees all plans, an operator only its own."""
    author = "" if caller.is_owner else caller.name
    plans = Plans(caller.runs)
    return PlanList(plans=tuple(_line(plans, each) for each in plans.newest(author, request.count)))


@operation("plan.show", role=Role.OPERATOR, changes_state=False)
def show_plan(request: PlanQuery, caller: Caller) -> Plan:
    """Show a plan: its settings, its cost, and what is missing. Fails if it is out of date."""
    stored = _own_plan(request.plan, caller)
    return _described(stored, _resolve_again(stored, caller), caller)


@operation("plan.refuse", role=Role.OWNER, changes_state=True)
def refuse_plan(request: RefusePlan, caller: Caller) -> PlanLine:
    """Refuse a plan: it can no longer be started, and its author sees the reason."""
    plans = Plans(caller.runs)
    stored = plans.read(request.plan)
    plans.refuse(stored.plan, caller.name, request.reason)
    return _line(plans, stored)


def _make_plan(request: PlanRun, caller: Caller, revises: StoredPlan | None = None) -> Plan:
    prospect = _prospect(request, caller)
    role, revised = caller.role.name.lower(), revises.plan if revises else ""
    stored = Plans(caller.runs).add(
        caller.name, role, request.model_dump(mode="json"), prospect.resolved(), revised
    )
    return _described(stored, prospect, caller, revises)


def _described(
    stored: StoredPlan, prospect: _Prospect, caller: Caller, revises: StoredPlan | None = None
) -> Plan:
    run_settings = prospect.run_settings
    missing = missing_for(run_settings)
    before = completed_before(run_settings, caller)
    ready = all(each.standing != "missing" for each in missing)
    return Plan(
        plan=stored.plan,
        kind=run_settings.kind,
        environment=run_settings.name,
        model=str(run_settings.checked.model.model or "the agent's own model"),
        settings=dict(sorted(settings_of(prospect.spec).items())),
        cost=cost_of(prospect.spec, before),
        ready=ready,
        missing=missing,
        proves=prospect.proves,
        last_check=_last_check(before),
        changes=changes(revises.resolved, stored.resolved) if revises else "",
        may_change=() if revises else tuple(_free_fields(run_settings)),
        revises=stored.revises,
        next="start_run starts it; revise_plan changes a field" if ready else "see `missing`",
    )


def _resolve_again(stored: StoredPlan, caller: Caller) -> _Prospect:
    """Resolve a plan again, with at most its author's role. Raise PlanRefused if it differs."""
    role = min(caller.role, Role[stored.role.upper()])
    planner = replace(caller, role=role, name=stored.author)
    prospect = _prospect(PlanRun.model_validate(stored.request), planner)
    now = prospect.resolved()
    if digest_of(now) != digest_of(stored.resolved):
        changed = changes(stored.resolved, now) or "something"
        raise PlanRefused(
            f"plan {stored.plan} is out of date: {changed} changed since it was made; plan the run "
            "again and review the differences"
        )
    return prospect


def _refuse_used(stored: StoredPlan, caller: Caller) -> None:
    refusal = Plans(caller.runs).refusal_of(stored.plan)
    if refusal is not None:
        reason = f": {refusal}" if refusal else ""
        raise PlanRefused(f"the owner refused plan {stored.plan}{reason}; make another plan")
    if run := Plans(caller.runs).started_as(stored.plan):
        use = f"was started already, as run {run}"
        if not (caller.runs / run).is_dir():
            use = f"was used for run {run}, whose process died before the run was created"
        raise PlanRefused(f"plan {stored.plan} {use}; a plan starts one run: make a new plan")


def _refuse_missing(prospect: _Prospect) -> None:
    missing = [each for each in missing_for(prospect.run_settings) if each.standing == "missing"]
    if missing:
        listed = "; ".join(f"{each.what}: {each.found} ({each.fix})" for each in missing)
        raise PlanRefused(f"this machine lacks requirements of the run; tell the owner: {listed}")


def _prospect(request: PlanRun, caller: Caller) -> _Prospect:
    if not request.environment:
        raise InvalidInput("name an environment, or a run in `like`")
    if request.kind == "train" and request.cases is not None:
        raise InvalidInput("cases is for evaluations; set max_steps to limit a training run")
    run_settings = resolve_run(
        request.environment, request.kind, _expand_dotted(request.settings), caller
    )
    if request.kind == "train":
        return _Prospect(run_settings, run_settings.spec(TrainSpec), request.prove)
    spec = run_settings.spec(EvalSpec, split=Split.VALIDATION, cases=request.cases)
    return _Prospect(run_settings, spec, False)


def _last_check(before: Sequence[Done]) -> LastCheck | None:
    for done in before:
        if summary := find_summary(done.folder, CheckSummary):
            return LastCheck(run=done.folder.id, verdict=summary.verdict, why=summary.why)
    return None


def _expand_like(request: PlanRun, caller: Caller) -> PlanRun:
    """Return this request with the environment and kind of the run named in `like`. Settings and
    cases that the request leaves out are those of the run's command."""
    if not request.like:
        return request
    spec = read_run_spec(find_run(caller.runs, request.like))
    if not isinstance(spec, TrainSpec | EvalSpec):
        raise InvalidInput(
            f"a run of kind {spec.kind} cannot be planned; name a train or eval run in `like`"
        )
    if request.environment not in ("", spec.environment):
        raise InvalidInput(
            f"run {request.like} is of environment {spec.environment}: leave environment out"
        )
    settings = nested({**request_of(spec), **dict(flatten(_expand_dotted(request.settings)))})
    cases = spec.cases if isinstance(spec, EvalSpec) else None
    update = {
        "environment": spec.environment,
        "kind": spec.kind,
        "settings": settings,
        "cases": request.cases or cases,
        "like": "",
    }
    return request.model_copy(update=update)


def _expand_dotted(settings: Table) -> Table:
    """Return settings such as `{"config.level": 2}` as nested tables."""
    return nested(dict(sorted(plain(settings).items(), key=lambda each: "." in each[0])))


def _with_field(request: PlanRun, field: str, value: Any, caller: Caller) -> PlanRun:
    if field == _OWN_FIELDS[request.kind]:
        return PlanRun.model_validate({**request.model_dump(), field: value})
    parts = field.split(".")
    if parts[0] not in known_names(request.kind) or not all(parts):
        free = _free_fields(resolve_run(request.environment, request.kind, {}, caller))
        hint = nearest(field, known_names(request.kind))
        raise SettingError(
            f"a plan of kind {request.kind} has no field {field[:80]!r}; {hint}{' ' * bool(hint)}"
            f"you may change {', '.join(free)}"
        )
    settings = {**_expand_dotted(request.settings), field: value}
    return request.model_copy(update={"settings": _expand_dotted(settings)})


def _free_fields(run_settings: RunSettings) -> list[str]:
    """Return the fields that may change: those of `config` singly, other tables whole."""
    locked = {
        name for name, each in run_settings.resolved.settings.items() if each.lock is not None
    }
    names = [name for name in run_settings.resolved.settings if name not in {*locked, "config"}]
    own = {name if name.startswith("config.") else name.split(".")[0] for name in names}
    return sorted({_OWN_FIELDS[run_settings.kind], *own})


def _own_plan(name: str, caller: Caller) -> StoredPlan:
    stored = Plans(caller.runs).read(name)
    if stored.author != caller.name and not caller.is_owner:
        raise NotPermitted(f"plan {stored.plan} is {stored.author}'s; make your own plan")
    return stored


def _line(plans: Plans, stored: StoredPlan) -> PlanLine:
    refusal = plans.refusal_of(stored.plan)
    return PlanLine(
        plan=stored.plan,
        author=stored.author,
        role=stored.role,
        created=stored.created,
        kind=str(stored.request.get("kind") or ""),
        environment=str(stored.request.get("environment") or ""),
        settings=dict(stored.request.get("settings") or {}),
        revises=stored.revises,
        run=plans.started_as(stored.plan),
        refused=refusal or "",
        is_refused=refusal is not None,
    )
