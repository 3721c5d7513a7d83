"""The first phase of a training that has a warm start: it ends in checkpoint step-0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.training import WarmStart
from sparring.engine.building import Built, TrainWork, player_of
from sparring.engine.pass_memory import PassSize
from sparring.engine.ranks import Launched, gathered, told_by_rank_0
from sparring.engine.warm_start import fine_tune, save_start, start_from, use_as_reference
from sparring.learning.demonstrations import (
    Found,
    KnownCases,
    TriedDemonstrations,
    from_file,
    from_run,
    render,
    try_demonstrations,
    what_is_wrong,
)
from sparring.learning.judged_play import Plays
from sparring.learning.rows import LearningRow, learning_row
from sparring.player import Played
from sparring.policies.scripted_policy import Script
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter, cut_from_step

Say = Callable[[str], None]


def warm_start(
    folder: RunFolder,
    work: TrainWork,
    built: Built,
    launched: Launched,
    *,
    say: Say,
    size: PassSize | None = None,
    accept_changes: bool = False,
) -> None:
    """Bring the model to step-0: from its checkpoint, or by learning from demonstrations. What
    is there afterwards is also what the KL is measured from. Where somebody wants to stop, there
    is no step-0, and the trainer says that it was stopped."""
    warm = work.settings.warm_start
    if warm is None:
        return
    if work.rollout_function is not None:
        raise SettingError("warm_start: demonstrations are played by the agent; leave it out here")
    trainer = built.trainer
    if trainer.is_sharded():
        raise SettingError(
            "warm_start: not with sharded weights (FSDP, DeepSpeed); train in two runs"
        )

    def is_done() -> bool:
        return built.checkpoints.start(accept_changes=accept_changes) is not None

    if told_by_rank_0(is_done, launched):
        start_from(trainer, folder.checkpoints / "step-0", work.settings.seed)
    else:
        trainer.doing("playing demonstrations")
        rows = _rows(folder, warm, work, launched, say)
        say(f"warm start: learning from {len(rows)} demonstrations")
        losses: list[float] = []

        def note(step: int, steps: int, loss: float) -> None:
            losses.append(loss)
            if step in (1, steps) or step % max(1, steps // 10) == 0:
                say(f"warm start: step {step} of {steps}, loss {loss:.3f}")

        def wants_to_stop() -> bool:
            trainer.doing("learning from demonstrations")  # asked after each step
            return trainer.wants_to_stop()

        fine_tune(
            trainer.accelerator.unwrap_model(trainer.model),
            trainer.processing_class,
            rows,
            work.settings,
            warm,
            output=folder.path / "engine",
            plan=built.plan,
            size=size,
            on_step=note,
            wants_to_stop=wants_to_stop,
        )
        if trainer.wants_to_stop():
            trainer.stopped = True
            return
        about = {"demonstrations": len(rows), "first_loss": losses[0], "last_loss": losses[-1]}
        save_start(trainer, built.checkpoints, warm_start=about)
    use_as_reference(trainer)


def _rows(
    folder: RunFolder, warm: WarmStart, work: TrainWork, launched: Launched, say: Say
) -> list[LearningRow]:
    found = _find(folder, warm.source, KnownCases(work.suite))
    if not found.demonstrations:
        raise InvalidInput(
            f"warm_start: {warm.source} has nothing to learn from{_why(found.left_out)}"
        )
    played = render(
        lambda script: player_of(work, script),
        work.measures,
        found.demonstrations,
        launched.place,
    )
    _log(folder, launched.rank, played)
    end_of_turn = work.loaded.codec().end_of_turn
    judged = gathered([_judged(each.rollout, work, end_of_turn) for each in played])
    judged.sort(key=lambda each: each.number)
    left_out = Counter(each.problem for each in judged if each.row is None)
    rows = [each.row for each in judged if each.row is not None]
    if not rows:
        told = tried_demonstrations(warm.source, folder, work) if launched.world_size == 1 else None
        raise InvalidInput(
            f"warm_start: none of {len(judged)} demonstrations passes: {next(iter(left_out))}"
            + (f"; set max_completion_length={told.needed}" if told and told.needed else "")
        )
    if left_out or found.left_out:
        say(f"warm start: left out{_why({**found.left_out, **left_out})}")
    return rows


def tried_demonstrations(source: str, folder: RunFolder, work: TrainWork) -> TriedDemonstrations:
    """What would come of a warm start from `source`; nothing is learned, and nothing is logged."""

    def player(script: Script, budget: int | None) -> Plays:
        update = {} if budget is None else {"max_completion_length": budget}
        roomy = replace(work, settings=work.settings.model_copy(update=update))
        return player_of(roomy, script)

    found = _find(folder, source, KnownCases(work.suite))
    return try_demonstrations(player, work.measures, found.demonstrations)


def _find(folder: RunFolder, source: str, cases: KnownCases) -> Found:
    path = Path(source)
    if path.is_file():
        return from_file(path, cases)
    for run in (RunFolder(path), RunFolder(folder.path.parent / source)):
        if run.spec.is_file():
            return from_run(run, cases)
    raise InvalidInput(
        f"warm_start: {source} is neither a file of demonstrations nor a run; write a JSONL file "
        "with `messages`, or name a run: sparring eval … --split training"
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """One demonstration, as ranks tell one another: a row, or why there is none."""

    number: int
    row: LearningRow | None
    problem: str


def _judged(rollout: Rollout, work: TrainWork, end_of_turn: int) -> _Judged:
    if problem := what_is_wrong(rollout):
        return _Judged(rollout.key.index, None, problem)
    row = learning_row(
        rollout,
        end_of_turn=end_of_turn,
        vocabulary=work.loaded.model.config.get_text_config().vocab_size,
        masks_truncated=False,
        is_demonstrated=True,
    )
    return _Judged(rollout.key.index, row, "")


def _log(folder: RunFolder, rank: int, played: list[Played]) -> None:
    cut_from_step(folder.demonstrations(rank), 0)  # of an attempt that was cut off
    with RolloutWriter(folder.demonstrations(rank)) as writer:
        for each in played:
            writer.append(each.rollout, each.seconds)


def _why(counted: Mapping[str, int]) -> str:
    told = ", ".join(f"{count} ({reason})" for reason, count in counted.items())
    return f": {told}" if told else ""
