"""Executes a shipment: writes and verifies artefacts in a staging folder, then renames the folder.

Every stage can be repeated: files are complete or absent, and the run's folder keeps rollouts and
results of checks. A killed shipment therefore resumes at the stage where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.kinds import Form, ShipSpec
from sparring.contracts.summaries import ShipSummary
from sparring.environments.task import Task
from sparring.jobs.run_job import Attempt, Job
from sparring.jobs.ship.behaviour import (
    compare_on_validation,
    play_checkpoint,
    play_held_out,
    play_on_other_servers,
    play_without_examples,
)
from sparring.jobs.ship.context import ShipContext, choose_checkpoint, open_checkpoint
from sparring.jobs.ship.handing_over import Delivery
from sparring.jobs.ship.playing import ShipPlayer
from sparring.jobs.ship.verdict import ShipVerdict, choose, summary_of, verdict_of
from sparring.jobs.ship.verifying import trained_prompts, verify_artefacts, write_artefacts
from sparring.shipping.artefacts import (
    Artefact,
    Writing,
    chosen_forms,
    needed_bytes,
    possible_forms,
)
from sparring.shipping.folder import ShipFolder
from sparring.shipping.llama_cpp import find_llama_cpp
from sparring.shipping.other_servers import find_vllm
from sparring.threads import run_in_own_loop

_TRIAL = "trial"


class ShipJob(Job[ShipSummary]):
    """One shipment, from its checkpoint to the folder that users get."""

    def __init__(self, attempt: Attempt, spec: ShipSpec, task: Task) -> None:
        folder = attempt.folder
        self._spec = spec
        self._heartbeat = attempt.heartbeat
        checkpoint = choose_checkpoint(folder, spec)
        self._shipping = ShipContext(
            folder=folder,
            spec=spec,
            task=task,
            checkpoint=checkpoint,
            source=open_checkpoint(checkpoint, spec, task.family, task.agent),
            ship=ShipFolder(folder.path / _TRIAL if spec.trial else Path(spec.to), folder.id),
            player=ShipPlayer(folder, spec, task, attempt.heartbeat, _planned_rollouts(spec, task)),
            llama=find_llama_cpp(spec.llama_cpp),
        )

    def run(self) -> ShipSummary:
        """Ship and return the summary. If an artefact is faulty, nothing is delivered."""
        return run_in_own_loop(self._run())

    async def _run(self) -> ShipSummary:
        started = time.monotonic()
        try:
            verdict = await self._ship_verified()
        except FaultyArtefact as error:
            verdict = ShipVerdict(problem=str(error), is_refused=True)
        summary = summary_of(self._shipping, verdict, time.monotonic() - started)
        if not summary.to:
            self._shipping.ship.discard()
        return summary

    async def _ship_verified(self) -> ShipVerdict:
        shipping, spec = self._shipping, self._spec
        self._stage("preparing")
        forms = self._forms()
        if not shipping.ship.is_delivered:
            shipping.ship.open(needed_bytes(shipping.source, forms, spec.quantizations))
        validation = self._validation_cases()
        artefacts = await self._write_and_verify(forms, validation)
        shipping.without_examples = await play_without_examples(shipping, validation)
        # A single artefact that will play held-out cases need not play validation cases.
        plays_held_out = shipping.proof is not None and spec.cases != 0
        if validation and not (len(artefacts) == 1 and plays_held_out):
            self._stage("comparing")
            await compare_on_validation(shipping, artefacts, validation)
        if spec.vllm or spec.register_with_ollama:
            self._stage("serving")
            await play_on_other_servers(shipping, artefacts, validation)
        chosen = choose(artefacts, shipping.rows, is_compared=spec.compare)
        held_out = await play_held_out(shipping, chosen)
        verdict = verdict_of(shipping.rows, chosen, held_out)
        self._stage("publishing")
        if not spec.trial:
            Delivery(shipping).hand_over(chosen, verdict)
        return verdict

    def _forms(self) -> tuple[Form, ...]:
        """Return the forms to write. Raises MissingPackage if llama.cpp, vLLM or a Python package
        that they need is missing."""
        shipping, spec = self._shipping, self._spec
        if spec.vllm:
            find_vllm()
        wanted = chosen_forms(spec.forms, shipping.source)
        found = possible_forms(wanted, shipping.source, spec.quantizations, shipping.llama)
        if found.warning:
            shipping.warnings.append(found.warning)
        return found.forms

    def _validation_cases(self) -> list[Case]:
        """Return the validation cases to play; none if the suite has too few."""
        suite, wanted = self._shipping.task.suite, self._spec.validation_cases
        has_enough = suite.size(Split.VALIDATION) >= suite.minimum
        return list(suite.cases(Split.VALIDATION, wanted)) if wanted and has_enough else []

    async def _write_and_verify(
        self, forms: Sequence[Form], validation: Sequence[Case]
    ) -> list[Artefact]:
        shipping = self._shipping
        self._stage("playing the checkpoint")
        cases = validation or list(shipping.task.suite.cases(Split.TRAINING, 8))
        played = await play_checkpoint(shipping, cases)
        proved = shipping.proof_rollouts("trained")
        shipping.conversations = await trained_prompts(shipping, cases, [*proved, *played])
        self._stage("writing")
        writing = Writing(shipping.name, self._spec.play.temperature, shipping.llama)
        artefacts = write_artefacts(shipping, forms, writing)
        self._stage("verifying")
        verify_artefacts(shipping, artefacts, proved or played)
        return artefacts

    def _stage(self, name: str) -> None:
        """Report the stage in the heartbeat."""
        self._heartbeat.note(name)


def _planned_rollouts(spec: ShipSpec, task: Task) -> int:
    validation = min(spec.validation_cases, task.suite.size(Split.VALIDATION))
    total = (spec.max_validation_plays - (not task.examples)) * validation
    if spec.proof:
        held_out = task.suite.size(Split.HELD_OUT)
        held_out = held_out if spec.cases is None else min(spec.cases, held_out)
        total += held_out * (2 + spec.rollouts)
    return total
