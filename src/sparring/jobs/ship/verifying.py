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
from sparring.shipping.verification import (
    Reference,
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
    """Return the first prompts of up to 48 cases, and up to 48 longer conversations from their
    rollouts. Raises FaultyArtefact if a first prompt differs from the prompt that a rollout
    logged."""
    known = {case.id: case for case in cases} | {each.case.id: each.case for each in rollouts}
    some = list(known.values())[:_PROMPTS]
    codec = shipping.source.codec()
    plays = [Play(RolloutKey(shipping.spec.play.seed, 0, case.id, 0), case) for case in some]
    first = await first_prompts(shipping.task.agent, codec, plays, shipping.task.context)
    by_case = {each.case: each for each in first}
    longer: list[EncodedChat] = []
    for rollout in rollouts:
        if (conversation := by_case.get(rollout.case.id)) is None:
            continue
        if rollout.rows and rollout.turns:
            check_trained_ids(conversation, trained_ids(rollout), codec)
        if (more := continued(conversation, rollout, codec)) is not None:
            longer.append(more)
    return [*first, *longer[:_PROMPTS]]


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
