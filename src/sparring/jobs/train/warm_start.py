"""The warm start of a training run: supervised learning from demonstrations, saved as step-0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.training import WarmStart
from sparring.engine.building import Built, player_of
from sparring.engine.pass_memory import PassSize
from sparring.engine.ranks import from_rank_0, gathered
from sparring.engine.warm_start import fine_tune, save_start, start_from, use_as_reference
from sparring.engine.work import TrainWork
from sparring.learning.demonstrations import (
    Found,
    KnownCases,
    RunLoop,
    TriedDemonstrations,
    from_file,
    from_run,
    problem_of,
    render,
    try_demonstrations,
)
from sparring.learning.engine import Launched
from sparring.learning.rollout_collector import Plays
from sparring.learning.rows import LearningRollout, RowRules, learning_rollout
from sparring.player import Played
from sparring.policies.scripted_policy import Script
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step

Announce = Callable[[str], None]


def warm_start(
    folder: RunFolder,
    work: TrainWork,
    built: Built,
    launched: Launched,
    *,
    announce: Announce,
    size: PassSize | None = None,
    accept_changes: bool = False,
) -> None:
    """Load the checkpoint step-0, or create it by fine-tuning the model on demonstrations.

    The resulting weights are also the reference of the KL term. On a stop request, step-0 is not
    saved and `steps.stopped` is set.
    """
    warm = work.settings.warm_start
    if warm is None:
        return
    if work.rollout_function is not None:
        raise SettingError(
            "warm_start does not work with a rollout function, because the agent plays the "
            "demonstrations; remove one of the two"
        )
    trainer = built.trainer
    if trainer.is_sharded():
        raise SettingError(
            "warm_start does not work with sharded weights (FSDP, DeepSpeed); make the warm start "
            "in a run without sharding, then start a sharded run from the model of that run"
        )

    def is_done() -> bool:
        return built.checkpoints.start(accept_changes=accept_changes) is not None

    if from_rank_0(is_done, launched):
        start_from(trainer, folder.checkpoints / "step-0", work.settings.seed)
    else:
        built.steps.doing("playing demonstrations")
        run = built.collector.loop.run
        learned = _demonstrations_that_pass(folder, warm, work, launched, announce, run)
        if not _fine_tune_and_save(
            learned, warm, folder=folder, work=work, built=built, announce=announce, size=size
        ):
            return
    use_as_reference(trainer)


def _fine_tune_and_save(
    learned: list[LearningRollout],
    warm: WarmStart,
    *,
    folder: RunFolder,
    work: TrainWork,
    built: Built,
    announce: Announce,
    size: PassSize | None,
) -> bool:
    """Fine-tune on the demonstrations, save step-0 and return True. On a stop request, save nothing
    and return False."""
    trainer = built.trainer
    announce(f"warm start: learning from {len(learned)} demonstrations")
    losses: list[float] = []

    def report_step(step: int, steps: int, loss: float) -> None:
        losses.append(loss)
        if step in (1, steps) or step % max(1, steps // 10) == 0:
            announce(f"warm start: step {step} of {steps}, loss {loss:.3f}")

    def is_stop_requested() -> bool:  # called after each step, so it also reports the activity
        built.steps.doing("learning from demonstrations")
        return built.steps.is_stop_requested()

    fine_tune(
        trainer.accelerator.unwrap_model(trainer.model),
        trainer.processing_class,
        [row for each in learned for row in each.rows],
        work.settings,
        warm,
        output=folder.path / "engine",
        plan=built.plan,
        size=size,
        on_step=report_step,
        is_stop_requested=is_stop_requested,
    )
    if built.steps.is_stop_requested():
        built.steps.stopped = True
        return False
    summary = {"demonstrations": len(learned), "first_loss": losses[0], "last_loss": losses[-1]}
    save_start(trainer, built.checkpoints, warm_start=summary)
    return True


def _demonstrations_that_pass(
    folder: RunFolder,
    warm: WarmStart,
    work: TrainWork,
    launched: Launched,
    announce: Announce,
    run: RunLoop,
) -> list[LearningRollout]:
    """Play this rank's demonstrations; return the passing ones of all ranks, in source order."""
    found = _find_demonstrations(folder, warm.source, KnownCases(work.suite))
    if not found.demonstrations:
        raise InvalidInput(
            f"warm_start: {warm.source} has no usable demonstration{_list_counts(found.left_out)}"
        )
    played = render(
        lambda script: player_of(work, script),
        work.measures,
        found.demonstrations,
        launched,
        run,
    )
    _write_log(folder, launched.rank, played)
    rules = replace(work.row_rules(), masks_truncated=False, keeps_results=0)
    judged = gathered([_learned_or_problem(each.rollout, rules) for each in played])
    judged.sort(key=lambda each: each.number)
    left_out = Counter(each.problem for each in judged if each.learned is None)
    learned = [each.learned for each in judged if each.learned is not None]
    if not learned:
        tried = (
            tried_demonstrations(warm.source, folder, work, run)
            if launched.world_size == 1
            else None
        )
        raise InvalidInput(
            f"warm_start: none of {len(judged)} demonstrations passes; the first failure: "
            f"{next(iter(left_out))}"
            + (f"; set max_completion_length={tried.needed}" if tried and tried.needed else "")
        )
    if left_out or found.left_out:
        counts = {**found.left_out, **left_out}
        announce(f"warm start: demonstrations left out{_list_counts(counts)}")
    return learned


def tried_demonstrations(
    source: str, folder: RunFolder, work: TrainWork, run: RunLoop
) -> TriedDemonstrations:
    """Play the demonstrations of `source` without learning from them or logging them."""

    def player(script: Script, budget: int | None) -> Plays:
        update = {} if budget is None else {"max_completion_length": budget}
        with_budget = replace(work, settings=work.settings.model_copy(update=update))
        return player_of(with_budget, script)

    found = _find_demonstrations(folder, source, KnownCases(work.suite))
    return try_demonstrations(player, work.measures, found.demonstrations, run)


def _find_demonstrations(folder: RunFolder, source: str, cases: KnownCases) -> Found:
    path = Path(source)
    if path.is_file():
        return from_file(path, cases)
    for run in (RunFolder(path), RunFolder(folder.path.parent / source)):
        if run.spec.is_file():
            return from_run(run, cases)
    raise InvalidInput(
        f"warm_start: {source} is neither a file of demonstrations nor a run; give a JSONL file "
        "with `messages`, or the id of a run, such as one of `sparring eval … --split training`"
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """The result of one played demonstration: its rows to learn from, or why it is left out."""

    number: int
    learned: LearningRollout | None
    problem: str


def _learned_or_problem(rollout: Rollout, rules: RowRules) -> _Judged:
    if problem := problem_of(rollout):
        return _Judged(rollout.key.index, None, problem)
    learned = learning_rollout(rollout, rules, is_demonstrated=True)
    if not any(any(row.mask) for row in learned.rows):
        return _Judged(rollout.key.index, None, "none of the trained agents plays a turn")
    return _Judged(rollout.key.index, learned, "")


def _write_log(folder: RunFolder, rank: int, played: list[Played]) -> None:
    cut_from_step(folder.demonstrations(rank), 0)  # an interrupted attempt may have written some
    with RolloutWriter(folder.demonstrations(rank)) as writer:
        for each in played:
            writer.append(each.rollout, each.seconds)


def _list_counts(counts: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{count} ({reason})" for reason, count in counts.items())
    return f": {reasons}" if reasons else ""
