"""The checkpoint of a shipment, and the state that all its stages share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparring.contracts.errors import CheckpointError, InvalidInput
from sparring.contracts.kinds import Form, ShipSpec
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import ArtefactRow, ExamplesRow, ProveSummary
from sparring.environments.task import Task
from sparring.jobs.ship.playing import CHECKPOINT, ShipPlayer, served_artefact
from sparring.jobs.worker import report_event
from sparring.learning.checkpoints import verify
from sparring.policies.families import Family, family_named
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.contents import read_summary
from sparring.run_folder.files import read_lines
from sparring.run_folder.layout import slug
from sparring.run_folder.sharded_log import read_rollouts
from sparring.shipping.artefacts import Artefact
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.folder import ShipFolder
from sparring.shipping.how_to_run import Runnable
from sparring.shipping.llama_cpp import LlamaCpp
from sparring.shipping.source import Source, adapter_rank, context_length, is_public, open_source

_LEAST_CONTEXT = 4096


@dataclass(slots=True)
class ShipContext:
    """A shipment's run, its checkpoint, the folder to write, and the results so far.

    `rows` holds the results of each artefact, by name, for the report, the cards and `ship.json`.
    `warnings` explain why requested forms were left out.
    """

    folder: RunFolder
    spec: ShipSpec
    task: Task
    checkpoint: Checkpoint
    source: Source
    ship: ShipFolder
    player: ShipPlayer
    llama: LlamaCpp
    conversations: Sequence[EncodedChat] = ()
    rows: dict[str, ArtefactRow] = field(default_factory=dict)
    without_examples: ExamplesRow | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name under which servers offer the model."""
        return self.spec.name or Path(self.spec.to).name or slug(self.spec.environment)

    @property
    def proof(self) -> RunFolder | None:
        """The run that proved the checkpoint; None without a proof."""
        return sibling_run(self.folder, self.spec.proof) if self.spec.proof else None

    def proof_summary(self) -> ProveSummary | None:
        """Return the summary of the proof; None without a proof."""
        return read_summary(self.proof, ProveSummary) if self.proof is not None else None

    def proof_rollouts(self, side: str) -> list[Rollout]:
        """Return the proof's rollouts of `base` or `trained`; an empty list without a proof."""
        return read_rollouts([self.proof.rollouts_of(side)]) if self.proof is not None else []

    def served(self, artefact: Artefact) -> AbstractContextManager[Policy]:
        """Serve an artefact with its runtime: transformers, or llama.cpp for GGUF."""
        return served_artefact(
            artefact, self.source, self.llama, self.log_of(artefact), self.context_tokens()
        )

    def log_of(self, artefact: Artefact) -> Path:
        """Return the path of the log of an artefact's llama.cpp server."""
        return self.folder.log(1, f"llama-{artefact.precision}")

    def context_tokens(self) -> int:
        """Return the context length for one conversation, at most the model's, in tokens."""
        longest = max((len(each.ids) for each in self.conversations), default=0)
        turns = self.spec.play.max_turns
        needed = longest + turns * (self.spec.play.max_completion_length + 512)
        return min(context_length(self.source), max(_LEAST_CONTEXT, needed))


def sibling_run(folder: RunFolder, run: str) -> RunFolder:
    """Return the run with the id `run` in the same runs folder."""
    return RunFolder(folder.path.parent / run)


def choose_checkpoint(folder: RunFolder, spec: ShipSpec) -> Checkpoint:
    """Return the checkpoint that the spec names; by default the best on validation, or the last if
    none was validated. A resumed shipment keeps its checkpoint."""
    checkpoints = list_checkpoints(sibling_run(folder, spec.run).checkpoints)
    events = [line for line in read_lines(folder.events) if line.get("event") == "shipping"]
    wanted = events[-1]["checkpoint"] if events else spec.checkpoint
    found = {each.path.name: each for each in checkpoints}
    if not found or (wanted and wanted not in found):
        names = ", ".join(found) or "none"
        missing = wanted or "to ship"
        raise InvalidInput(f"run {spec.run} has no checkpoint {missing}; it has {names}")
    chosen = found[wanted] if wanted else best_of(checkpoints) or checkpoints[-1]
    if not events:
        report_event(folder, "shipping", checkpoint=chosen.path.name)
    return chosen


def open_checkpoint(
    checkpoint: Checkpoint, spec: ShipSpec, declared: Family | None, agent: Any
) -> Source:
    """Verify a checkpoint by its manifest and open it. `declared` is the environment's family."""
    if problem := verify(checkpoint.path):
        raise CheckpointError(
            f"{checkpoint.path} cannot be shipped: {problem}; ship another checkpoint"
        )
    base = spec.base
    family = family_named(base.family) if base.family else declared
    if family is not None and (base.thinking, base.history_thinking) != ("auto", "drop"):
        family = family.adapted(base.thinking, base.history_thinking)
    model = base.model or agent.model
    if not isinstance(model, str):
        raise InvalidInput(f"run {spec.run} does not name the model it started from")
    return open_source(checkpoint.path, model, family)


def runnable_of(shipping: ShipContext, gguf: str = "") -> Runnable:
    """Return the facts for the commands; `gguf` is the path of the GGUF file that they name."""
    source = shipping.source
    forms = {row.form for row in shipping.rows.values()}
    return Runnable(
        name=shipping.name,
        family=source.family,
        base=source.base_name,
        is_base_public=is_public(source.base),
        context=context_length(source),
        has_adapter=Form.ADAPTER.value in forms,
        adapter_rank=adapter_rank(source),
        has_merged=Form.MERGED.value in forms,
        gguf=gguf,
        has_ollama=bool(gguf) and Form.OLLAMA in shipping.spec.forms,
        has_tools=any(each.tools for each in shipping.conversations),
        has_instructions=any(each.system for each in shipping.conversations),
        examples=len(shipping.task.examples),
        thinks=is_thinking(shipping.player.rollouts_of(CHECKPOINT)),
    )


def is_thinking(rollouts: Sequence[Rollout]) -> bool:
    """Return whether more than half of the assistant messages contain thinking."""
    messages = [each for rollout in rollouts for each in rollout.messages]
    written = [each for each in messages if each.role == "assistant"]
    return 2 * sum(bool(each.thinking) for each in written) > len(written)
