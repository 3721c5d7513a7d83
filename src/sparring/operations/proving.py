"""Starting a proof: of a training that is done, or to follow one that runs."""

from __future__ import annotations

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import IllegalMove, InvalidInput, NotPermitted, OverBudget
from sparring.contracts.proof_specs import ProveSpec
from sparring.contracts.specs import Frozen, PlaySettings
from sparring.contracts.training import TrainSpec
from sparring.operations.limits import budget_for
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.outgrown import refuse_outgrown
from sparring.operations.starting import Started, start
from sparring.projects import find_project
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.events import tell_state
from sparring.runs.claims import newest_epoch
from sparring.runs.finding import find_run
from sparring.runs.history import read_history
from sparring.runs.lifecycle import RunState, may_become
from sparring.settings.project_file import Budget
from sparring.source_files import code_digest, refuse_changed_code


class StartProof(Frozen):
    run: str = Field(description="a training: its id, a part of it, or its environment's name")
    checkpoint: str = Field(default="", description="as in step-50; by default the best")
    cases: int | None = Field(default=None, ge=1, description="at most so many held-out cases")
    rollouts: int = Field(default=4, ge=1, le=256, description="of each case, by each of the two")
    split: Split = Field(default=Split.HELD_OUT, description="which cases; held-out ones prove")
    picked_from: int = Field(
        default=1, ge=1, le=1000, description="how many trained models were compared on these cases"
    )
    also: str = Field(
        default="",
        description="a second environment that must not suffer",
        json_schema_extra=FOR_OWNERS,
    )
    accept_changes: bool = Field(
        default=False,
        description="although its environment's file has changed since training",
        json_schema_extra=FOR_OWNERS,
    )


@operation(
    "prove.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(cli="prove", tool="prove_run", python="sparring.prove"),
)
def start_proof(request: StartProof, caller: Caller) -> Started:
    """Play base and trained on the same held-out cases, and say whether it got better.

    It is a run that goes on by itself. Its results have a verdict: better, worse, or not shown,
    with the interval of the difference. A training that was planned with `prove` is followed by
    one without asking.
    """
    folder = find_run(caller.runs, request.run, kind="train")
    spec = _training(folder)
    state = read_history(folder).history.state
    if not state.has_ended and not request.checkpoint:
        raise IllegalMove(
            f"run {folder.id} is {state.value}; wait for it, or name one of its checkpoints"
        )
    _refuse_without_checkpoint(folder, request.checkpoint)
    if not caller.is_owner and (request.also or request.accept_changes):
        raise NotPermitted("a second suite, and changed code, are the owner's to say")
    if request.accept_changes:
        spec = spec.model_copy(update={"code_digest": code_digest(spec.target)})
    refuse_changed_code(folder.id, spec.target, spec.code_digest)
    also = (
        find_project(caller.folder).find(request.also, by_name_only=False) if request.also else None
    )
    proof = ProveSpec.model_validate(
        proof_of(folder.id, spec).model_dump()
        | {
            "checkpoint": request.checkpoint,
            "cases": request.cases,
            "rollouts": request.rollouts,
            "split": request.split,
            "picked_from": request.picked_from,
            "also": also.target if also else "",
            "also_environment": also.name if also else "",
        }
    )
    budget = budget_for(caller.folder, is_owner=caller.is_owner)
    proof = within(budget, proof.model_copy(update={"hours": budget.hours}))
    if not caller.is_owner:
        refuse_outgrown(proof, caller)
    return start(proof, caller, runs_at_once=budget.runs_at_once)


def start_proof_after(started: Started, spec: TrainSpec, caller: Caller, budget: Budget) -> str:
    """The proof that follows a training; it waits for it, whoever else goes away."""
    proof = proof_of(started.run, spec).model_copy(update={"after": started.run})
    name, most = proof_name(started.run), budget.runs_at_once
    return start(within(budget, proof), caller, runs_at_once=most, name=name).run


def within(budget: Budget, proof: ProveSpec) -> ProveSpec:
    """As many cases as the project's rollouts allow; nobody knows yet how many there are."""
    if budget.rollouts is None:
        return proof
    room = budget.rollouts // (2 * proof.rollouts)
    if (proof.cases or 1) > room:
        raise OverBudget(
            f"at most {budget.rollouts:,} rollouts a run, and this proof could play "
            f"{2 * proof.rollouts * (proof.cases or 1):,}; take fewer cases or rollouts"
        )
    return proof.model_copy(update={"cases": proof.cases or room})


def proof_name(run: str) -> str:
    return f"proof-{run}"


def wait_again(folder: RunFolder, caller: Caller, budget: Budget) -> str:
    """A training goes on, so that its proof waits for it again; empty where it has none."""
    proof = RunFolder(folder.path.parent / proof_name(folder.id))
    if not proof.spec.is_file() or proof.read_spec().get("after") != folder.id:
        return ""
    state = read_history(proof).history.state
    if state is RunState.QUEUED:
        return proof.id
    if state is RunState.COMPLETED or not may_become(state, RunState.QUEUED):
        return ""
    told = {"runs_at_once": budget.runs_at_once, "hours": budget.hours}
    told |= {"after": newest_epoch(proof)}
    tell_state(proof, RunState.QUEUED, author=caller.name, **told)
    return proof.id


def proof_of(run: str, spec: TrainSpec) -> ProveSpec:
    """Played as in training, with the base that it began with."""
    own = {name: getattr(spec.settings, name) for name in PlaySettings.model_fields}
    shared = {
        name: getattr(spec, name)
        for name in ("target", "environment", "config", "services", "supervision", "hours")
    }
    return ProveSpec(
        **shared,
        code_digest=spec.code_digest,
        run=run,
        policy=spec.policy,
        base=spec.policy,
        play=PlaySettings(**{**own, "num_generations": 1}),
    )


def _refuse_without_checkpoint(folder: RunFolder, name: str) -> None:
    """Before a run is made of it: there is nothing to prove without weights."""
    there = [each.path.name for each in list_checkpoints(folder.checkpoints)]
    if not there:
        raise InvalidInput(f"run {folder.id} has no checkpoint, so there is nothing to prove")
    if name and name not in there:
        raise InvalidInput(f"run {folder.id} has no {name[:40]!r}; there are {', '.join(there)}")


def _training(folder: RunFolder) -> TrainSpec:
    spec = folder.read_spec()
    if spec.get("kind") != "train":
        raise InvalidInput(
            f"run {folder.id} is no training (its kind is {spec.get('kind')}): a proof compares a "
            "trained model with its base; `sparring run list --kind train` lists trainings"
        )
    if str(spec.get("target", "")).startswith("(python) "):
        raise InvalidInput(
            f"run {folder.id} was started from Python, with objects that only Python has; "
            "evaluate() before and after on held-out cases, and prove() there"
        )
    return TrainSpec.model_validate(spec)
