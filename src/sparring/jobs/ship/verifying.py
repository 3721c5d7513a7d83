"""Writes artefacts, and verifies each against the checkpoint: prompts and log-probabilities."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.kinds import Form
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.summaries import ArtefactRow
from sparring.jobs.ship.context import ShipContext
from sparring.player import Play
from sparring.player.external_agent import ExternalAgent
from sparring.player.trainability import reached_agents
from sparring.run_folder.files import read_json, write_json
from sparring.shipping.artefacts import (
    Artefact,
    Writing,
    write_folders,
    write_gguf_files,
    write_modelfile,
)
from sparring.shipping.conversations import EncodedChat, continued, first_prompts, trained_ids
from sparring.shipping.llama_cpp import served
from sparring.shipping.shipped_agent import AGENT, ShippedAgent, unshipped_beginning
from sparring.shipping.verification import (
    Reference,
    check_folder_prompt,
    check_trained_ids,
    make_reference,
    positions_of,
    verify_folder,
    verify_server,
)

_PROMPTS = 48
_REPLAYED = 16


async def trained_prompts(
    shipping: ShipContext, cases: Sequence[Case], rollouts: Sequence[Rollout]
) -> list[EncodedChat]:
    """Write `agent.json`, and return prompts that are made of what it holds: the first prompts of
    up to 48 cases, and up to 48 longer conversations from their rollouts.

    Raises FaultyArtefact if a first prompt of the agent differs from the prompt that a rollout
    logged, or a first prompt by the folder from the agent's.
    """
    known = {case.id: case for case in cases} | {each.case.id: each.case for each in rollouts}
    some = list(known.values())[:_PROMPTS]
    task, codec = shipping.task, shipping.source.codec()
    plays = [Play(RolloutKey(shipping.spec.play.seed, 0, case.id, 0), case) for case in some]
    proved = await first_prompts(task.agent, codec, plays, task.context, examples=task.opening)
    of_case = {each.case: each for each in proved}
    for rollout in rollouts:
        if rollout.case.id in of_case and rollout.rows and rollout.turns:
            check_trained_ids(of_case[rollout.case.id], trained_ids(rollout), codec)
    agent = await _written_agent(shipping, proved, plays[:1])
    if not isinstance(task.agent, ExternalAgent):  # which makes its own prompts
        shipping.player.by_folder(agent)
        by_folder = await first_prompts(
            task.agent, codec, plays, task.context, examples=agent.items(), reframe=agent.reframe
        )
        for ours, theirs in zip(by_folder, proved, strict=True):
            check_folder_prompt(ours, theirs, codec)
        of_case = {each.case: each for each in by_folder}
    longer = [
        more
        for rollout in rollouts
        if (first := of_case.get(rollout.case.id)) is not None
        and (more := continued(first, rollout, codec)) is not None
    ]
    return [*of_case.values(), *longer[:_PROMPTS]]


async def _written_agent(
    shipping: ShipContext, proved: Sequence[EncodedChat], plays: Sequence[Play]
) -> ShippedAgent:
    """Write `agent.json`, unless an earlier attempt did, and return what can be read from it. Of
    the agents that others hand off to or call, it holds the frame of one play."""
    task, codec = shipping.task, shipping.source.codec()
    others = [
        chat
        for each in list(reached_agents(task.agent))[1:]
        for chat in await first_prompts(each, codec, plays, task.context)
    ]
    secret = {each.case.id for each in shipping.proof_rollouts("trained")}
    found = ShippedAgent.of(
        shipping.spec.environment, [*proved, *others], task.opening, secret=secret
    )
    shipping.ship.write_file(AGENT, lambda place: write_json(place, found.as_json()))
    agent = ShippedAgent.read(shipping.ship.root)
    agent.require({each.name for each in found.frames})
    if unshipped := unshipped_beginning(proved, agent):
        shipping.warnings.append(
            f"every case begins with the same {unshipped} messages, which agent.json does not "
            "hold: requests must send them. Declare them as worked examples (`examples`), and "
            "train again"
        )
    return agent


def write_artefacts(
    shipping: ShipContext, forms: Sequence[Form], writing: Writing
) -> list[Artefact]:
    """Write the folders for transformers, the GGUF files, and Ollama's Modelfile."""
    artefacts = write_folders(shipping.ship, shipping.source, forms, writing)
    if Form.GGUF not in forms:
        return artefacts
    quantizations = shipping.spec.quantizations
    files = write_gguf_files(shipping.ship, shipping.source, quantizations, writing)
    if Form.OLLAMA in forms:
        write_modelfile(shipping.ship, files[0].place, shipping.source, writing)
    return [*artefacts, *files]


def verify_artefacts(
    shipping: ShipContext, artefacts: Sequence[Artefact], rollouts: Sequence[Rollout]
) -> None:
    """Verify all artefacts and store the results in `shipping.rows`. Results of an earlier attempt
    are reused. Raises FaultyArtefact."""
    reference: Reference | None = None
    for artefact in artefacts:
        place = shipping.folder.path / "checks" / f"{artefact.name.replace(' ', '-')}.json"
        if not place.is_file():
            if reference is None:
                reference = make_reference(
                    shipping.source,
                    shipping.conversations,
                    positions_of(rollouts[:_REPLAYED]),
                    shipping.spec.play.temperature,
                )
            write_json(place, _verify(shipping, artefact, reference))
        shipping.rows[artefact.name] = ArtefactRow(
            name=artefact.name,
            form=artefact.form.value,
            size=artefact.size,
            path=str(artefact.place.relative_to(shipping.ship.root)),
            written_seconds=round(artefact.seconds, 1),
            **read_json(place),
        )


def _verify(shipping: ShipContext, artefact: Artefact, reference: Reference) -> dict[str, Any]:
    started = time.monotonic()
    try:
        if artefact.form is not Form.GGUF:
            found = verify_folder(artefact.place, reference, dtype=artefact.precision)
        else:
            log, context = shipping.log_of(artefact), shipping.context_tokens()
            with served(shipping.llama, artefact.place, log, context=context) as server:
                found = verify_server(
                    server,
                    reference,
                    quantization=artefact.precision,
                    about=shipping.llama.about,
                )
    except FaultyArtefact as error:
        raise FaultyArtefact(f"{artefact.name}: {error}") from error
    return {**found, "verified_seconds": round(time.monotonic() - started, 1)}
