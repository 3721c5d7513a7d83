"""Starts proofs: the operation `prove.start`, and the proof that follows a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.command_line import RUN
from sparring.contracts.errors import IllegalMove, InvalidInput, NotPermitted, OverBudget
from sparring.contracts.kinds import ProveSpec
from sparring.contracts.specs import Frozen, is_python_target
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.resolution import fields_for, revalidate
from sparring.operations.run_views import active_proof, default_checkpoint, standing_of
from sparring.operations.starting import Started, start
from sparring.projects import find_project
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.events import append_state
from sparring.run_folder.layout import short_id
from sparring.runs.claims import newest_epoch
from sparring.runs.finding import find_run
from sparring.runs.history import History, read_history
from sparring.runs.lifecycle import RunState, may_become
from sparring.settings.project_file import Budget
from sparring.source_files import code_digest, digests_of, refuse_changed_code


class StartProof(Frozen):
    """The proof to start: a training run, and the cases to play."""

    run: Annotated[str, RUN] = Field(
        description="a training run: its id, the beginning or end of its id, or its environment's "
        "name"
    )
    checkpoint: str = Field(
        default="", description="checkpoint to prove, as in step-50; default: the best"
    )
    cases: int | None = Field(
        default=None, ge=1, description="maximum number of cases; default: all"
    )
    rollouts: int = Field(
        default=4,
        ge=1,
        le=256,
        description="number of rollouts per case for each of the two models",
    )
    split: Split = Field(
        default=Split.HELD_OUT,
        description="split to play; only held-out cases prove anything, and the interval on "
        "validation cases is corrected for checkpoint selection",
    )
    picked_from: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="number of trained models compared on these cases; corrects for the selection",
    )
    also: str = Field(
        default="",
        description="a second environment, on which the model must not get worse",
        json_schema_extra=FOR_OWNERS,
    )
    accept_changes: bool = Field(
        default=False,
        description="prove the run although its code has changed since the training",
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
    """Play the base and the trained model on the same held-out cases, and compare them.

    The proof is a run in the background. Its verdict is better, worse or not shown, with the
    interval of the difference. After a training that was planned with `prove`, the proof starts
    automatically.
    """
    folder = find_run(caller.runs, request.run, kind="train")
    spec = training_spec(folder)
    state = read_history(folder).history.state
    if not state.has_ended and not request.checkpoint:
        raise IllegalMove(
            f"run {folder.id} is {state.value}; wait for it, or name one of its checkpoints"
        )
    _refuse_without_checkpoint(folder, request.checkpoint)
    if not caller.is_owner and (request.also or request.accept_changes):
        raise NotPermitted("only the owner may prove on a second environment or with changed code")
    spec = with_current_code(folder, spec, verb="prove", accept_changes=request.accept_changes)
    own = {**spec.fields_of_later_runs(), **fields_for(ProveSpec, request), "run": folder.id}
    if request.also:
        also = find_project(caller.folder).find(request.also, by_name_only=False)
        own |= {"also": also.target, "also_environment": also.name}
    budget = caller.budget()
    proof = within(budget, ProveSpec(**{**own, "hours": budget.hours}))
    if not caller.is_owner:
        revalidate(proof, caller)
    _refuse_second(folder, request)
    return start(proof, caller, runs_at_once=budget.runs_at_once)


def start_proof_after(started: Started, spec: TrainSpec, caller: Caller, budget: Budget) -> str:
    """Queue a training run's proof, which starts when the training completes; return its id."""
    proof = proof_of(started.run, spec).model_copy(update={"after": started.run})
    name, most = proof_name(started.run), budget.runs_at_once
    return start(within(budget, proof), caller, runs_at_once=most, name=name).run


def within(budget: Budget, proof: ProveSpec) -> ProveSpec:
    """Return the proof within the budget's rollouts. Raise OverBudget if its cases do not fit.

    The size of the suite is not known here: a proof without a maximum number of cases gets the
    largest one that fits.
    """
    if budget.rollouts is None:
        return proof
    suites = 2 if proof.also else 1
    per_case = 2 * suites * proof.rollouts
    room = budget.rollouts // per_case
    if (proof.cases or 1) > room:
        raise OverBudget(
            f"the budget allows {budget.rollouts:,} rollouts per run, and this proof can play "
            f"{per_case * (proof.cases or 1):,}; lower cases or rollouts"
        )
    return proof.model_copy(update={"cases": proof.cases or room})


def proof_name(run: str) -> str:
    """Return the id of the proof that follows a training run."""
    return f"proof-{run}"


def is_stopped_by_another(history: History, caller: Caller) -> bool:
    """Whether the caller is an operator, and another caller stopped the run. A supervisor stops a
    run whose hours are used up; the budget decides whether it is resumed."""
    stopper = history.stop.author if history.stop else "supervisor"
    return not caller.is_owner and stopper not in ("supervisor", caller.name)


def has_proof_after(folder: RunFolder) -> bool:
    """Return whether a training run was started together with its proof."""
    proof = RunFolder(folder.path.parent / proof_name(folder.id))
    return proof.spec.is_file() and proof.read_spec().get("after") == folder.id


def proof_to_queue_again(folder: RunFolder, caller: Caller) -> RunFolder | None:
    """Return the proof that follows a training when the caller resumes it; None if there is none,
    or it stays as it is. Raises LockedField or OverBudget if the caller may not start it."""
    proof = RunFolder(folder.path.parent / proof_name(folder.id))
    if not has_proof_after(folder):
        return None
    history = read_history(proof).history
    state = history.state
    if is_stopped_by_another(history, caller):
        return None
    if state is RunState.QUEUED:
        return proof
    if state is RunState.COMPLETED or not may_become(state, RunState.QUEUED):
        return None
    if not caller.is_owner:
        revalidate(ProveSpec.model_validate(proof.read_spec()), caller)
    return proof


def requeue_proof(
    proof: RunFolder, caller: Caller, budget: Budget, *, accept_changes: bool = False
) -> None:
    """Queue a proof again, unless it is queued with the same code."""
    if read_history(proof).history.state is RunState.QUEUED:
        if not accept_changes:
            return
        append_state(proof, RunState.STOPPED, author=caller.name)  # queued again with the changes
    facts = {"runs_at_once": budget.runs_at_once, "hours": budget.hours}
    facts |= {"after": newest_epoch(proof), "accept_changes": accept_changes}
    append_state(proof, RunState.QUEUED, author=caller.name, **facts)


def proof_of(run: str, spec: TrainSpec) -> ProveSpec:
    """Return the spec of a training run's proof."""
    return ProveSpec(run=run, **spec.fields_of_later_runs())


def with_current_code(
    folder: RunFolder, spec: TrainSpec, *, verb: str, accept_changes: bool
) -> TrainSpec:
    """Return the spec with the digests of the current code if changes are accepted; otherwise raise
    an error if the code has changed."""
    if accept_changes:
        now = digests_of(map(Path, spec.code_files))
        spec = spec.model_copy(update={"code_digest": code_digest(spec.target), "code_files": now})
    refuse_changed_code(folder.id, spec.target, spec.code_digest, spec.code_files, verb=verb)
    return spec


def _refuse_without_checkpoint(folder: RunFolder, name: str) -> None:
    """Raise InvalidInput if the run has no checkpoint, or none of this name."""
    names = [each.path.name for each in list_checkpoints(folder.checkpoints)]
    if not names:
        raise InvalidInput(f"run {folder.id} has no checkpoint, so there is nothing to prove")
    if name and name not in names:
        raise InvalidInput(f"run {folder.id} has no {name[:40]!r}; it has {', '.join(names)}")


def _refuse_second(folder: RunFolder, request: StartProof) -> None:
    """Raise IllegalMove if a proof of this checkpoint on these cases has not ended."""
    checkpoint = request.checkpoint or default_checkpoint(folder)
    if proof := active_proof(folder, checkpoint=checkpoint, split=request.split.value):
        raise IllegalMove(
            f"{proof.id} already proves {checkpoint} of run {folder.id}; it is "
            f"{standing_of(proof)}: `sparring run watch {short_id(proof.id)}` follows it"
        )


def training_spec(folder: RunFolder) -> TrainSpec:
    """Return the spec of a training run. Raise InvalidInput for other kinds, and for runs whose
    agent exists only in Python."""
    spec = folder.read_spec()
    if spec.get("kind") != "train":
        raise InvalidInput(
            f"run {folder.id} is not a training run (its kind is {spec.get('kind')}); choose one "
            "from `sparring run list --kind train`"
        )
    if is_python_target(str(spec.get("target", ""))):
        raise InvalidInput(
            f"run {folder.id} was started from Python, with objects that exist only there; prove "
            "and ship it there, with sparring.prove(result) and sparring.ship(result)"
        )
    return TrainSpec.model_validate(spec)
