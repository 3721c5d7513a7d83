"""Plays cases with artefacts. transformers loads folders, llama.cpp's server loads GGUF files.

Every artefact and the checkpoint play validation cases greedily, so that sampling adds no
difference. The checkpoint and the chosen artefact also play held-out cases greedily. The artefact
then plays them sampled as in the proof, to be compared with the base model's rollouts in the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from openai import APIStatusError

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.kinds import Form, ShipSpec
from sparring.contracts.policies import ChatReply, ChatRequest, Finish, Policy, Reply
from sparring.contracts.rollouts import Rollout
from sparring.contracts.specs import EndpointSpec
from sparring.environments.task import Task
from sparring.jobs.logged_play import LoggedPlay, plays_of
from sparring.jobs.worker import Heartbeat, PlayClock, Progress, ProgressHeartbeat
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.sharded_log import read_rollouts
from sparring.shipping.artefacts import Artefact
from sparring.shipping.llama_cpp import LlamaCpp, served
from sparring.shipping.shipped_agent import ShippedAgent
from sparring.shipping.source import Source, adapted, load_base, load_trained
from sparring.shipping.template import shipped_template

_SERVER_ERROR = 500
CHECKPOINT = "checkpoint"
HELD_OUT, HELD_OUT_GREEDY = "held-out", "held-out-greedy"
WITHOUT_EXAMPLES = "without-examples"
HELD_OUT_CHECKPOINT = "held-out-checkpoint"
_SLOTS = 4
_NO_KEY = "SPARRING_NO_KEY"


class ServedPolicy(EndpointPolicy):
    """Plays an artefact on its server. llama.cpp responds with status 500 if it cannot parse the
    model's tool call. This policy then returns a malformed reply, so that the rollout is scored."""

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the server's reply, or a malformed one if the server responds with status 500."""
        try:
            return await super().reply(request)
        except InfrastructureError as error:
            cause = error.__cause__
            if not isinstance(cause, APIStatusError) or cause.status_code != _SERVER_ERROR:
                raise
            return ChatReply(Reply("", malformed=str(cause)[:300]), Finish.STOP, 0, 0)


class ShipPlayer:
    """Plays rollouts into named logs in the run's folder, and writes the run's progress.

    After `by_folder`, every prompt begins with the instructions, tool schemas and worked examples
    of the folder instead of the task's.
    """

    def __init__(
        self, folder: RunFolder, spec: ShipSpec, task: Task, heartbeat: Heartbeat, total: int
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._task = task
        self._heartbeat = heartbeat
        self._progress = Progress(total)
        self._agent: ShippedAgent | None = None

    def by_folder(self, agent: ShippedAgent) -> None:
        """Play from now on with what the folder's `agent.json` holds."""
        self._agent = agent

    async def play(
        self,
        log_name: str,
        policy: Policy,
        cases: Sequence[Case],
        *,
        rollouts: int,
        is_greedy: bool,
        has_examples: bool = True,
    ) -> list[Rollout]:
        """Play the rollouts that the log `log_name` lacks, and return all its rollouts."""
        task, agent = self._task, self._agent
        play = self._spec.play
        if is_greedy:
            play = play.model_copy(update={"temperature": 0.0})
        if isinstance(policy, EndpointPolicy):
            play = play.model_copy(update={"max_concurrency": _SLOTS})
        logged = LoggedPlay(
            self._folder.rollouts_of(log_name),
            lambda: plays_of(cases, rollouts, play.seed),
            task=task,
            policy=policy,
            play=play,
            player=task.player(
                policy,
                play,
                opening=[]
                if not has_examples
                else task.opening
                if agent is None
                else agent.items(),
                reframe=agent.reframe if agent is not None else None,
            ),
        )
        self._heartbeat.watch(lambda: self._progress.rollouts + logged.tokens_drawn())
        self._heartbeat.note(f"playing: {log_name}", step=self._progress.rollouts)
        for rollout in logged.earlier():
            self._progress.count(rollout)
        clock = PlayClock(min(play.rollouts_at_once, max(1, len(cases) * rollouts)))
        beat = ProgressHeartbeat(self._folder, self._progress, logged.tokens_drawn, clock)
        beat.start_clock()
        async with beat.running():
            await logged.run(lambda played: self._progress.count(played.rollout))
        return self.rollouts_of(log_name)

    def rollouts_of(self, log_name: str) -> list[Rollout]:
        """Return the rollouts of a log."""
        return read_rollouts([self._folder.rollouts_of(log_name)])


def trained_policy(source: Source) -> TransformersPolicy:
    """Load the checkpoint into this process, with the chat template of its training."""
    family = replace(source.family, template=source.template)
    return TransformersPolicy(load_trained(source), source.tokenizer, family=family)


def served_endpoint(base_url: str, model: str) -> ServedPolicy:
    """Return a policy for a model on a local server with an OpenAI-compatible API."""
    endpoint = EndpointSpec(base_url=base_url, model=model, key_variable=_NO_KEY)
    return ServedPolicy([endpoint], retries=1, seconds=600.0)


@contextmanager
def served_artefact(
    artefact: Artefact, source: Source, llama_cpp: LlamaCpp, log: Path, context: int
) -> Iterator[Policy]:
    """Serve an artefact: with llama.cpp for a GGUF file, in-process for a folder."""
    if artefact.form is Form.GGUF:
        with served(llama_cpp, artefact.place, log, context=context, parallel=_SLOTS) as server:
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
