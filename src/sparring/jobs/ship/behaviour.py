"""Artefacts and checkpoint play the same cases, and their rewards are compared.

If the spec requests it, artefacts also play on vLLM and on a local Ollama. Those results are stored
under `servers` in the artefact's row, beside those of transformers or llama.cpp.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from sparring.contracts.cases import Case, Split, digest_of
from sparring.contracts.errors import RunChanged
from sparring.contracts.kinds import Form
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import (
    Difference,
    ExamplesRow,
    HeldOutRow,
    Standing,
    ValidationRow,
)
from sparring.jobs.ship.context import ShipContext, runnable_of
from sparring.jobs.ship.playing import (
    CHECKPOINT,
    HELD_OUT,
    HELD_OUT_CHECKPOINT,
    HELD_OUT_GREEDY,
    WITHOUT_EXAMPLES,
    served_endpoint,
    trained_policy,
)
from sparring.proofs.equivalence import compare, improvement
from sparring.run_folder.held_out_ledger import record_look
from sparring.shipping.artefacts import Artefact
from sparring.shipping.how_to_run import vllm_arguments
from sparring.shipping.other_servers import find_vllm, host, register, served_by_vllm
from sparring.shipping.template import shipped_template

_WITHOUT_EXAMPLES = 24  # cases


async def play_checkpoint(
    shipping: ShipContext, cases: Sequence[Case], log_name: str = CHECKPOINT
) -> list[Rollout]:
    """Return the greedy rollouts of the checkpoint; play them unless an earlier attempt did."""
    played = shipping.player.rollouts_of(log_name)
    if len(played) < len(cases):
        policy = trained_policy(shipping.source)
        played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
    return played


async def play_without_examples(shipping: ShipContext, cases: Sequence[Case]) -> ExamplesRow | None:
    """Play up to 24 validation cases with the checkpoint without the worked examples, and compare
    the rewards. Return None if the agent has none."""
    examples, some = len(shipping.task.examples), cases[:_WITHOUT_EXAMPLES]
    if not examples or not some:
        return None
    played = shipping.player.rollouts_of(WITHOUT_EXAMPLES)
    if len(played) < len(some):
        policy = trained_policy(shipping.source)
        played = await shipping.player.play(
            WITHOUT_EXAMPLES, policy, some, rollouts=1, is_greedy=True, has_examples=False
        )
    ids = {case.id for case in some}
    shown = [each for each in shipping.player.rollouts_of(CHECKPOINT) if each.case.id in ids]
    return ExamplesRow(
        examples=examples, cases=len(some), reward=_mean(shown), without=_mean(played)
    )


async def compare_on_validation(
    shipping: ShipContext, artefacts: Sequence[Artefact], cases: Sequence[Case]
) -> None:
    """Play the validation cases with every artefact, and compare each with the checkpoint."""
    for artefact in artefacts:
        log_name = artefact.name.replace(" ", "-")
        started = time.monotonic()
        with shipping.served(artefact) as policy:
            played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
        row = validation_row(shipping, played, time.monotonic() - started)
        named = shipping.rows[artefact.name]
        shipping.rows[artefact.name] = named.model_copy(update={"validation": row})


def validation_row(
    shipping: ShipContext, played: Sequence[Rollout], seconds: float
) -> ValidationRow:
    """Compare rollouts on validation cases with those of the checkpoint; return a row."""
    checkpoint = shipping.player.rollouts_of(CHECKPOINT)
    found = compare(checkpoint, played, margin=shipping.spec.margin)
    return ValidationRow(**dict(found), mean_reward=_mean(played), seconds=round(seconds, 1))


async def play_held_out(shipping: ShipContext, chosen: Artefact) -> HeldOutRow | None:
    """Play the held-out cases of the proof with the chosen artefact: greedily, to compare it with
    the checkpoint, and sampled as in the proof, to compare it with the base. The ledger counts this
    as one look. Return None without a proof, or if the spec's `cases` is 0."""
    proof, spec = shipping.proof_summary(), shipping.spec
    if proof is None or spec.cases == 0:
        return None
    suite = shipping.task.suite
    digest = digest_of(suite.cases(Split.HELD_OUT))
    if digest != proof.cases_digest:
        raise RunChanged(
            f"the held-out cases are no longer those of {spec.proof}; prove the training again, "
            "then ship it"
        )
    most = min(spec.cases or proof.cases, proof.cases)
    cases = list(suite.cases(Split.HELD_OUT, most))
    draw = f"{spec.play.seed}/{most}x{spec.rollouts}"
    name = f"{spec.run}/{shipping.checkpoint.path.name}"
    looks = record_look(shipping.folder, digest, f"{name}#{draw}#{chosen.name}")
    checkpoint = await play_checkpoint(shipping, cases, HELD_OUT_CHECKPOINT)
    player = shipping.player
    with shipping.served(chosen) as policy:
        greedy = await player.play(HELD_OUT_GREEDY, policy, cases, rollouts=1, is_greedy=True)
        sampled = await player.play(
            HELD_OUT, policy, cases, rollouts=spec.rollouts, is_greedy=False
        )
    ids = {case.id for case in cases}
    base = [each for each in shipping.proof_rollouts("base") if each.case.id in ids]
    found = compare(checkpoint, greedy, margin=spec.margin)
    gain = improvement(base, sampled, chances=looks)
    return HeldOutRow(
        **dict(found),
        artefact=chosen.name,
        looks=looks,
        base=gain,
        is_improved=gain is not None and gain.standing is Standing.BETTER,
        against_base=_against_base(gain),
    )


def _mean(rollouts: Sequence[Rollout]) -> float | None:
    rewards = [each.reward for each in rollouts if each.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _against_base(gain: Difference | None) -> str:
    if gain is None:
        return "too few cases could be scored on both sides"
    word = "better" if gain.standing is Standing.BETTER else "no improvement is shown"
    return (
        f"{word}: reward {gain.before:.3f} → {gain.after:.3f} "
        f"({gain.low:+.3f} … {gain.high:+.3f}) on {gain.cases} cases"
    )


@dataclass(frozen=True, slots=True)
class _Server:
    """A server of one artefact: its name, and a context that yields its address."""

    name: str
    artefact: Artefact
    serving: AbstractContextManager[str]


async def play_on_other_servers(
    shipping: ShipContext, artefacts: Sequence[Artefact], cases: Sequence[Case]
) -> None:
    """Play validation cases on vLLM, Ollama or both, as the spec requests. The model is
    registered with Ollama even if there are no cases."""
    for server in _servers(shipping, artefacts, uses_vllm=shipping.spec.vllm and bool(cases)):
        log_name = f"{server.artefact.name}-{server.name}".replace(" ", "-").lower()
        started = time.monotonic()
        with server.serving as address:
            if not cases:
                continue
            policy = served_endpoint(address, shipping.name)
            played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
        row = validation_row(shipping, played, time.monotonic() - started)
        named = shipping.rows[server.artefact.name]
        servers = {**named.servers, server.name: row}
        shipping.rows[server.artefact.name] = named.model_copy(update={"servers": servers})


def _servers(
    shipping: ShipContext, artefacts: Sequence[Artefact], *, uses_vllm: bool
) -> Iterator[_Server]:
    for artefact in artefacts:
        if uses_vllm and artefact.form is not Form.GGUF:
            yield _Server("vLLM", artefact, _vllm(shipping, artefact))
    file = next((each for each in artefacts if each.form is Form.GGUF), None)
    if shipping.spec.register_with_ollama and file is not None:
        yield _Server("Ollama", file, _ollama(shipping, file))


@contextmanager
def _vllm(shipping: ShipContext, artefact: Artefact) -> Iterator[str]:
    """Serve an artefact with vLLM's command in how_to_run.md, but with local paths."""
    template = shipping.folder.path / "checks" / "chat_template.jinja"
    template.parent.mkdir(exist_ok=True)
    template.write_text(shipped_template(shipping.source.template), encoding="utf-8")
    shipped = replace(runnable_of(shipping), context=shipping.context_tokens())
    arguments = vllm_arguments(
        shipped,
        artefact.form,
        folder=str(artefact.place),
        base=shipping.source.base_place,
        template=str(template),
    )
    log = shipping.folder.log(1, f"vllm-{artefact.name}")
    with served_by_vllm(find_vllm(), arguments, log) as address:
        yield address


@contextmanager
def _ollama(shipping: ShipContext, file: Artefact) -> Iterator[str]:
    """Register the model with the local Ollama, where it stays, and yield the server's URL."""
    has_tools = any(each.tools for each in shipping.conversations)
    register(file.place.parent, shipping.name, has_tools=has_tools)
    yield f"{host()}/v1"
