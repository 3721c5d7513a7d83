"""What a training hands back: figures, weights, and the agent with the better model. In the process
that trained, or in another, from the run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from agents import Agent, Runner

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, RunNotFound
from sparring.contracts.policies import Sampling, TokenPolicy
from sparring.contracts.rollouts import Rollout
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.environments import load_environment
from sparring.environments.environment import read_suite
from sparring.player.loops import run_in_own_loop
from sparring.player.policy_model import PolicyModel
from sparring.player.sdk_model import common_run_config
from sparring.player.worlds import world_tools
from sparring.policies.families import Family
from sparring.policies.loading import load_policy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.proofs.null_players import examples_before
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.files import read_json, write_json
from sparring.run_folder.ids import is_plain_name
from sparring.run_folder.metrics import history_of
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import GangLog


@dataclass(frozen=True)
class TrainResult:
    """The end of a training; `load` has that of an earlier one. `examples` are the worked examples
    that went before each question in training."""

    folder: RunFolder
    summary: Mapping[str, Any]
    agent: Agent[Any]
    model: Any
    tokenizer: Any
    policy: TokenPolicy
    settings: TrainSettings
    examples: Sequence[Any] = ()

    @classmethod
    def load(
        cls,
        run: str,
        *,
        runs: str | Path = "runs",
        agent: Agent[Any] | None = None,
        family: Family | None = None,
    ) -> Self:
        """A training by its id, or the last letters of it, with the weights of its best
        checkpoint. A run that was started from Python needs its `agent` again, and a `family` that
        was declared there."""
        folder = _find(Path(runs), run)
        spec = TrainSpec.model_validate(folder.read_spec())
        there = list_checkpoints(folder.checkpoints)
        chosen = best_of(there) or (there[-1] if there else None)
        if chosen is None or not folder.summary.is_file():
            raise InvalidInput(f"run {folder.id} has not ended with a checkpoint yet")
        examples: Sequence[Any] = ()
        if agent is None:
            if spec.target.startswith("("):
                raise InvalidInput(
                    f"run {folder.id} was started from Python, which keeps no agent: pass agent=…"
                )
            environment = load_environment(spec.target, spec.config)
            agent, family = environment.agent(), environment.family
            examples = examples_before(next(read_suite(environment).cases(Split.TRAINING, 1)))
        weights = spec.policy.model_copy(update={"model": str(chosen.path)})
        policy = load_policy(weights, agent.model, family)
        if not isinstance(policy, TransformersPolicy):
            raise InvalidInput(f"run {folder.id} was not trained in a process of its own")
        return cls(
            folder=folder,
            summary=read_json(folder.summary),
            agent=agent,
            model=policy.model,
            tokenizer=policy.tokenizer,
            policy=policy,
            settings=spec.settings,
            examples=examples,
        )

    @property
    def run(self) -> str:
        return self.folder.id

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """One row of metrics per step."""
        return history_of(self.folder)

    @property
    def final_loss(self) -> float | None:
        loss: float | None = self.summary["last"].get("loss")
        return loss

    @property
    def best(self) -> Path | None:
        """The checkpoint with the highest validation score; None without validation."""
        found = self.summary["best_checkpoint"]
        return Path(found) if found else None

    def __str__(self) -> str:
        done, planned = self.summary["steps"], self.summary["planned_steps"]
        stopped = f", stopped before step {planned}" if done < planned else ""
        lines = [f"{self.run}: {done} steps in {self.summary['seconds']:.0f} s{stopped}"]
        for row in self.summary["validation"]:
            lines.append(f"  validation reward at step {row['step']}: {row['reward']:.3f}")
        return "\n".join(lines)

    def trained_agent(self, sampling: Sampling | None = None, context: Any = None) -> Agent[Any]:
        """The agent with the trained model in it, for the SDK's `Runner`; the tools of a
        `context` that has any join its own."""
        chosen = sampling or Sampling(
            self.settings.temperature, self.settings.max_completion_length
        )
        tools = [*self.agent.tools, *world_tools(context)]
        return self.agent.clone(model=PolicyModel(self.policy, chosen), tools=tools)

    def generate(
        self,
        prompt: str | list[Any],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.7,
        repetition_penalty: float = 1.2,
        context: Any = None,
    ) -> str:
        """The trained agent's answer, with its tools, instructions and worked examples; thinking
        left out. A list of input items is taken as it is."""
        if isinstance(prompt, str):
            prompt = [*self.examples, {"role": "user", "content": prompt}]
        sampling = Sampling(temperature, max_new_tokens, repetition_penalty)
        agent = self.trained_agent(sampling, context)
        turns = self.settings.tool_rounds + 1
        as_trained = common_run_config()
        played = run_in_own_loop(
            Runner.run(agent, prompt, context=context, max_turns=turns, run_config=as_trained)
        )
        return str(played.final_output)

    def save(self, folder: str | Path, *, merged: bool = False) -> Path:
        """Weights, tokenizer and settings. Of LoRA the adapter, or, `merged`, a whole model."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        model = self.model
        if merged:
            if not hasattr(model, "merge_and_unload"):
                raise InvalidInput("there is no adapter to merge: save() writes the whole model")
            model = _merged(model)
        model.save_pretrained(place)
        self.tokenizer.save_pretrained(place)
        write_json(place / "sparring.json", {"run": self.run, **_plain(self.settings)})
        return place

    def rollouts(self) -> Iterator[Rollout]:
        """Every rollout that was learned from, read from disk one at a time."""
        log = GangLog(self.folder.rollout_logs())
        for record in log.records(0, len(log)):
            yield from_record(record)


def _find(runs: Path, name: str) -> RunFolder:
    if is_plain_name(name):
        for path in (runs / name, *sorted(runs.glob(f"*-{name}"), reverse=True)):
            folder = RunFolder(path)
            if folder.spec.is_file() and folder.read_spec().get("kind") == "train":
                return folder
    raise RunNotFound(f"there is no training {name[:80]!r} in {runs.absolute()}")


def _merged(model: Any) -> Any:
    """A whole model with the adapter in its weights; the one that was trained stays as it is."""
    import copy

    return copy.deepcopy(model).merge_and_unload()


def _plain(settings: TrainSettings) -> dict[str, Any]:
    return {"settings": json.loads(settings.model_dump_json())}
