"""The warm start of a training run: supervised learning from demonstrations, saved as step-0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.training import WarmStart
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
from sparring.learning.engine import Announce, Launched, from_rank_0
from sparring.learning.rollout_collector import Plays
from sparring.learning.rows import LearningRollout, RowRules, learning_rollout
from sparring.learning.work import Built, TrainWork
from sparring.policies.scripted_policy import Script
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step


def warm_start(
    folder: RunFolder,
    built: Built,
    launched: Launched,
    *,
    announce: Announce,
    accept_changes: bool = False,
) -> None:
    """Load the checkpoint step-0, or create it by fine-tuning the model on demonstrations.

    The resulting weights are also the reference of the KL term. On a stop request, step-0 is not
    saved and `steps.stopped` is set.
    """
    work, engine, steps = built.work, built.engine, built.steps
    warm = work.settings.warm_start
    if warm is None:
        return
    if work.rollout_function is not None:
        raise SettingError(
            "warm_start does not work with a rollout function, because the agent plays the "
            "demonstrations; remove one of the two"
        )
    find_start = partial(engine.checkpoints.start, accept_changes=accept_changes)
    if (start := from_rank_0(find_start, engine)) is not None:
        engine.start_from(start)
        return
    steps.doing("playing demonstrations")
    learned = _demonstrations_that_pass(folder, warm, built, launched, announce)
    announce(f"warm start: learning from {len(learned)} demonstrations")

    def report_step(step: int, steps: int, loss: float) -> None:
        if step in (1, steps) or step % max(1, steps // 10) == 0:
            announce(f"warm start: step {step} of {steps}, loss {loss:.3f}")

    def is_stop_requested() -> bool:  # called after each step, so it also reports the activity
        steps.doing("learning from demonstrations")
        return steps.is_stop_requested()

    steps.stopped = not engine.learn(
        learned, warm, on_step=report_step, is_stop_requested=is_stop_requested
    )


def _demonstrations_that_pass(
    folder: RunFolder,
    warm: WarmStart,
    built: Built,
    launched: Launched,
    announce: Announce,
) -> list[LearningRollout]:
    """Play this rank's demonstrations; return the passing ones of all ranks, in source order."""
    work, run = built.work, built.collector.loop.run
    found = _find_demonstrations(folder, warm.source, KnownCases(work.suite))
    if not found.demonstrations:
        raise InvalidInput(
            f"warm_start: {warm.source} has no usable demonstration{_list_counts(found.left_out)}"
        )
    played = render(work.scripted_player, work.task.measures, found.demonstrations, launched, run)
    cut_from_step(folder.demonstrations(launched.rank), 0)  # an interrupted attempt may have begun
    with RolloutWriter(folder.demonstrations(launched.rank)) as writer:
        for each in played:
            writer.append(each.rollout, each.seconds)
    rules = replace(work.row_rules(), masks_truncated=False, keeps_results=0)
    judged = built.engine.gather([_learned_or_problem(each.rollout, rules) for each in played])
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
        return with_budget.scripted_player(script)

    found = _find_demonstrations(folder, source, KnownCases(work.suite))
    return try_demonstrations(player, work.task.measures, found.demonstrations, run)


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


def _list_counts(counts: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{count} ({reason})" for reason, count in counts.items())
    return f": {reasons}" if reasons else ""
