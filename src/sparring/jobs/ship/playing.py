"""Verification 3: artefacts play cases: folders with transformers, GGUF files with llama.cpp.

Every artefact and the checkpoint play validation cases greedily, so that only weights can differ.
Only the chosen artefact plays held-out cases: greedily, to be compared with the checkpoint, and
sampled as in the proof, to be compared with the base model's rollouts in the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sparring.contracts.cases import Case
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.ship_specs import Form, ShipSpec
from sparring.contracts.specs import EndpointSpec, PlaySettings
from sparring.environments.environment import Parts
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.logged_play import LoggedPlay
from sparring.jobs.progress import Progress, ProgressHeartbeat
from sparring.jobs.rollout_reading import read_rollouts
from sparring.measures import MeasureSet
from sparring.player import Play
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.shipping.artefacts import Artefact
from sparring.shipping.llama_cpp import LlamaCpp, served
from sparring.shipping.served_policy import ServedPolicy
from sparring.shipping.source import Source, adapted, load_base, load_trained
from sparring.shipping.template import shipped_template

CHECKPOINT = "checkpoint"
HELD_OUT, HELD_OUT_GREEDY = "held-out", "held-out-greedy"
HELD_OUT_CHECKPOINT = "held-out-checkpoint"
_SLOTS = 4
_NO_KEY = "SPARRING_NO_KEY"


@dataclass(frozen=True, slots=True)
class Table:
    """What is played: the agent's parts, its measures, and how."""

    parts: Parts
    measures: MeasureSet
    play: PlaySettings


class Playing:
    """Plays cases into the run's logs, one player after another, and shows progress."""

    def __init__(
        self, folder: RunFolder, spec: ShipSpec, table: Table, heartbeat: Heartbeat, total: int
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._table = table
        self._heartbeat = heartbeat
        self._progress = Progress(total)

    async def play(
        self, player: str, policy: Policy, cases: Sequence[Case], *, rollouts: int, is_greedy: bool
    ) -> list[Rollout]:
        """Plays the cases that are missing in the log of `player`; returns all its rollouts."""
        play = self._table.play
        if is_greedy:
            play = play.model_copy(update={"temperature": 0.0})
        if isinstance(policy, EndpointPolicy):
            play = play.model_copy(update={"in_flight": _SLOTS})
        await self._play(player, policy, self._plan(cases, rollouts), play)
        return self.rollouts_of(player)

    def rollouts_of(self, player: str) -> list[Rollout]:
        """Returns the logged rollouts of a player."""
        return read_rollouts([self._folder.rollouts_of(player)])

    def _plan(self, cases: Sequence[Case], rollouts: int) -> list[Play]:
        seed = self._spec.play.seed
        return [
            Play(RolloutKey(seed, 0, case.id, index), case)
            for case in cases
            for index in range(rollouts)
        ]

    async def _play(
        self, player: str, policy: Policy, plan: Sequence[Play], play: PlaySettings
    ) -> None:
        logged = LoggedPlay(
            self._folder.rollouts_of(player),
            lambda: iter(plan),
            agent=self._table.parts.agent,
            policy=policy,
            measures=self._table.measures,
            play=play,
            context=self._table.parts.world,
            user=self._table.parts.user,
        )
        beat = ProgressHeartbeat(self._folder, self._progress, logged.tokens_drawn)
        beat.doing = f"playing {player}"
        self._heartbeat.watch(lambda: self._progress.rollouts + logged.tokens_drawn())
        self._heartbeat.note("playing", step=self._progress.rollouts)
        for rollout in logged.earlier():
            self._progress.count(rollout)
        async with beat.running():
            await logged.run(lambda played: self._progress.count(played.rollout))


def trained_policy(source: Source) -> TransformersPolicy:
    """The checkpoint, in this process, with the template of its training."""
    family = replace(source.family, template=source.template)
    return TransformersPolicy(load_trained(source), source.tokenizer, family=family)


def served_endpoint(base_url: str, model: str) -> ServedPolicy:
    """A model on a local server, by its OpenAI-compatible API."""
    endpoint = EndpointSpec(base_url=base_url, model=model, key_variable=_NO_KEY)
    return ServedPolicy([endpoint], retries=1, seconds=600.0)


@contextmanager
def served_artefact(
    artefact: Artefact, source: Source, found: LlamaCpp, log: Path, context: int
) -> Iterator[Policy]:
    """Serves an artefact: a folder with transformers in-process, a GGUF file with llama.cpp."""
    if artefact.form is Form.GGUF:
        with served(found, artefact.place, log, context=context, parallel=_SLOTS) as server:
            yield served_endpoint(server.base_url, server.model)
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(artefact.place)
    if artefact.form is Form.ADAPTER:
        model = adapted(load_base(source), artefact.place)
    else:
        import torch

        from sparring.policies.pretrained import load_weights

        model = load_weights(str(artefact.place), dtype=torch.float32)
    family = replace(source.family, template=shipped_template(source.template))
    yield TransformersPolicy(model, tokenizer, name=artefact.name, family=family)
