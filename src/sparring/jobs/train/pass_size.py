"""Chooses the number of rows in one pass through the model, by the available memory.

The number is chosen once and stored in the run's folder, so that a resumed run repeats bit for bit.
Each restart after running out of memory halves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, replace

from sparring.contracts.cases import Split
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.building import Built, player_of
from sparring.engine.configuration import device_of, plan_of
from sparring.engine.pass_memory import PassSize, choose_rows, measure_pass, optimizer_bytes
from sparring.engine.ranks import from_rank_0
from sparring.engine.work import TrainWork
from sparring.learning.batches import largest_divisor
from sparring.learning.engine import Launched
from sparring.player import Play
from sparring.player.worlds import end_world
from sparring.policies.prefixes import common_prefix
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines, write_json

_PROMPT_CASES = 4
_DEFAULT_PROMPT_TOKENS = 512  # for a rollout function, whose prompts are unknown


def fit_passes(
    folder: RunFolder,
    work: TrainWork,
    built: Built,
    launched: Launched,
    announce: Callable[[str], None] = lambda _: None,
) -> PassSize | None:
    """Split the rows of a step into passes that fit into memory, and return their size. If weights
    are sharded or quantized, or `engine` sets `steps_per_generation`, change nothing and return
    None."""
    trainer, settings = built.trainer, work.settings
    if trainer.is_sharded() or "steps_per_generation" in settings.engine or settings.quantization:
        return None
    chosen = from_rank_0(lambda: _stored(folder) or _choose(work, built), launched)
    if launched.rank == 0:
        write_json(folder.passes, {"format": 1, **asdict(chosen)})
    kills = from_rank_0(lambda: memory_restarts(folder), launched)
    rows = largest_divisor(built.plan.rows_per_pass, max(1, chosen.rows >> kills))
    if kills:
        announce(_after_kills(kills, rows, chosen.rows))
    if rows < built.plan.rows_per_pass:
        capped = settings.model_copy(update={"per_device_train_batch_size": rows})
        cases = work.suite.size(Split.TRAINING)
        trainer.use_plan(plan_of(capped, cases, launched.world_size))
    return replace(chosen, rows=rows, bytes=chosen.bytes * rows // chosen.rows)


def _after_kills(kills: int, rows: int, before: int) -> str:
    restarts = f"restarts after running out of memory: {kills}"
    if rows == before:
        return (
            f"{restarts}; a pass has {rows} rows and cannot be split further: lower "
            "max_completion_length or set gradient_checkpointing"
        )
    return (
        f"{restarts}; {rows} rows a pass instead of {before}: a step learns from the same rows, "
        "and only rounding differs"
    )


def memory_restarts(folder: RunFolder) -> int:
    """Return how often the run was restarted because it ran out of memory."""
    return sum(
        event.get("event") == "restart" and event.get("cause") == "out_of_memory"
        for event in read_lines(folder.events)
    )


def _stored(folder: RunFolder) -> PassSize | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        content = read_json(folder.passes)
        return PassSize(*(int(content[name]) for name in ("rows", "bytes", "token", "free")))
    return None


def _choose(work: TrainWork, built: Built) -> PassSize:
    trainer, settings = built.trainer, work.settings
    model = trainer.accelerator.unwrap_model(trainer.model)
    prompt, common = _prompt_tokens(work, built)
    cost = measure_pass(trainer.score_sample, model, prompt=prompt, common=common)
    return choose_rows(
        cost,
        width=settings.max_completion_length,
        rows=built.plan.rows_per_pass,
        group=built.plan.rollouts_per_case,
        device=device_of(settings),
        wanted=settings.pass_memory,
        needed_besides=optimizer_bytes(model),
    )


def _prompt_tokens(work: TrainWork, built: Built) -> tuple[int, int]:
    """Return the length in tokens of the longest prompt of a few cases, and that of the prefix that
    their prompts share. The agent plays them with scripted answers, so nothing is sampled."""
    if work.rollout_function is not None:
        return _DEFAULT_PROMPT_TOKENS, 0
    prompts: list[list[int]] = []

    def answer(request: SampleRequest) -> str:
        prompts.append(list(request.prompt))
        return "."

    async def play() -> None:
        cases = work.suite.spread(_PROMPT_CASES)
        plays = [Play(RolloutKey(0, 0, case.id, 0), case) for case in cases]
        async for played in player_of(work, answer).play(plays):
            await end_world(played.rollout.world)

    built.collector.loop.run(play())
    if not prompts:
        return _DEFAULT_PROMPT_TOKENS, 0
    return max(map(len, prompts)), common_prefix(prompts)
