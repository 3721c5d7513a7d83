"""The state that all stages of a shipment share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.ship_specs import ShipSpec
from sparring.contracts.summaries import ArtefactRow, ProveSummary
from sparring.environments.task import Task
from sparring.jobs.rollout_reading import read_rollouts
from sparring.jobs.ship.opening import sibling_run
from sparring.jobs.ship.playing import ShipPlayer, served_artefact
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint
from sparring.run_folder.contents import read_summary
from sparring.run_folder.ids import slug
from sparring.shipping.artefacts import Artefact
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.folder import ShipFolder
from sparring.shipping.llama_cpp import LlamaCpp
from sparring.shipping.source import Source, context_length

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
        turns = self.spec.play.tool_rounds + 1
        needed = longest + turns * (self.spec.play.max_completion_length + 512)
        return min(context_length(self.source), max(_LEAST_CONTEXT, needed))
