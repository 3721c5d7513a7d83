"""A training that is built and not started, whose rollouts are given tokens."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import torch

from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow, TokenUse
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.opening import load
from sparring.engine.tensors import Tensors
from sparring.engine.trainer import PolicyTrainer
from sparring.learning.credit import streams_of
from sparring.learning.drawing import Drawn
from sparring.learning.engine import Batch, Launched
from sparring.learning.reporting import Hooks
from sparring.learning.work import Built, TrainWork, build
from sparring.run_folder import RunFolder
from tests.training import TALKATIVE, talk

GROUP, CASES, TEMPERATURE = 4, 2, 0.8


def answered(play: Any, policy: Any) -> Rollout:
    """Given tokens with true log-probabilities; draws a random number, as a tool may."""
    torch.rand(1)
    index = play.key.index
    prompt, completion = [7, 8, 9], list(range(20, 23 + index))
    ids = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0, :-1] / TEMPERATURE
    chosen = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).squeeze(1)
    row = TokenRow(
        "",
        array("i", ids[0].tolist()),
        array("f", chosen[len(prompt) - 1 :].tolist()),
        (Span(TokenKind.PROMPT, len(prompt)), Span(TokenKind.SAMPLED, len(completion))),
    )
    use = TokenUse(len(prompt), len(completion))
    return Rollout(play.key, play.case, Ending.ANSWERED, "x" * index, rows=(row,), tokens=use)


class Run:
    """A built training, and what it reported."""

    def __init__(self, tiny_folder: Path, folder: Path, **fields: Any) -> None:
        settings = TrainSettings(
            device="cpu", max_completion_length=16, temperature=TEMPERATURE,
            num_generations=GROUP, cases_per_batch=CASES, gradient_accumulation_steps=1,
            replacement_groups=0, draw_by_difficulty=False,
            **{
                "max_steps": 2, "validation_cases": 3, "per_device_train_batch_size": GROUP,
                **fields,
            },
        )  # fmt: skip
        loaded = load(PolicySpec(model=str(tiny_folder)), settings, declared=TALKATIVE)
        work = TrainWork(
            talk(), settings, loaded, rollout_function=answered,
        )  # fmt: skip
        self.doing: list[str] = []
        self.steps: list[tuple[int, dict[str, Any]]] = []
        self.validations: list[tuple[int, dict[str, Any]]] = []
        self.saved: list[tuple[int, Path]] = []
        self.parity: list[Any] = []
        self.warnings: list[str] = []
        self.is_stopping = False
        hooks = Hooks(
            on_step=lambda step, row: self.steps.append((step, row)),
            on_validation=lambda step, row: self.validations.append((step, row)),
            on_saved=lambda step, path: self.saved.append((step, path)),
            on_doing=lambda what, _: self.doing.append(what),
            on_parity=self.parity.append,
            on_warning=self.warnings.append,
            should_stop=lambda: self.is_stopping,
        )
        self.built: Built = build(RunFolder(folder), work, Launched(0, 1), hooks)
        self.built.collector.resume_at(0)
        self.engine: PolicyTrainer = self.built.engine
        self.engine.model.train()
        self.engine.current_gradient_accumulation_steps = 2
        self.settings = settings
        self.proposed: dict[int, list[str]] = {}

    def batch(self) -> Batch:
        """Play the cases of the next step, and return the batch that the engine gets of them."""
        built, step = self.built, self.engine.step
        if step not in self.proposed:
            self.proposed[step] = self.engine.propose(step)[0]
        rollouts = built.steps._play(Drawn(tuple(self.proposed[step])), step, None)
        streams = streams_of(built.steps._rules, rollouts.groups, self.engine)
        case_ids = tuple(group.case_id for group in rollouts.groups for _ in group.learned)
        return Batch(streams, case_ids, GROUP)

    def scored(self) -> Tensors:
        """Score a batch, and return its tensors."""
        self.engine.score(self.batch(), compares=True)
        return self.engine._tensors
