"""The result of a training: its agent, its weights, its history, and how it is opened again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from agents import Agent, Runner, function_tool

from sparring import Suite, TrainResult, call, tool, worked_example
from sparring.contracts.errors import (
    InvalidInput,
    RunNotFound,
)
from sparring.environments.examples import input_items
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_history_rows
from tests.jobs.agent_file import EveryOther
from tests.training import TALKATIVE, trainer


@function_tool
def wait(text: str = "") -> str:
    """Wait."""
    return text


def first_prompt_ids(result: TrainResult, question: Any = "hello") -> list[int]:
    """The first prompt that an answer is sampled from."""
    lengths = []
    kept = result.policy.sample

    async def sample(request: Any) -> Any:
        lengths.append(list(request.prompt))
        return await kept(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result.policy, "sample", sample)
        result.generate(question, max_new_tokens=4)
    return lengths[0]


def first_prompt(result: TrainResult, question: Any) -> str:
    return str(result.tokenizer.decode(first_prompt_ids(result, question)))


def prompt_tokens(result: TrainResult) -> int:
    return len(first_prompt_ids(result))


def test_a_training_returns_the_agent_with_the_trained_model(tiny_folder, tmp_path):
    result = trainer(
        tiny_folder, tmp_path, max_steps=1, agent=Agent(name="a", tools=[wait]),
        family=replace(TALKATIVE, tool_calls=EveryOther()),
    ).train()  # fmt: skip
    answer = result.generate("hello", max_new_tokens=12)
    assert isinstance(answer, str)
    shown = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"}]
    question = {"role": "user", "content": "2?"}
    record = {"input": [*shown, question], "split": "training"}
    suite = Suite.from_records([record], minimum_cases=1)
    taught = replace(result, task=replace(result.task, suite=suite))
    assert prompt_tokens(taught) > prompt_tokens(result)
    example = worked_example("1?", call(wait, text="one"), answer="one")
    shown_how = replace(result, worked_examples=(example,))
    assert shown_how.examples == input_items([example])
    assert first_prompt(shown_how, "hello").count("1?") == 1
    assert first_prompt(shown_how, [{"role": "user", "content": "hello"}]).count("1?") == 1
    assert first_prompt(result, [*shown_how.examples, question]).count("1?") == 1
    played = asyncio.run(Runner.run(result.trained_agent(), "hello", max_turns=30))
    assert played.final_output is not None


def test_an_answer_is_generated_in_a_world_of_its_own_which_then_ends(tiny_folder, tmp_path):
    lives = []

    class Shelf:
        def __init__(self):
            lives.append("made")

        @tool
        def opening_hours(self, day: str) -> str:
            """When the library is open."""
            return "never"

        def after_rollout(self):
            lives.append("ended")

    result = trainer(tiny_folder, tmp_path, max_steps=1, context=Shelf).train()
    lives.clear()
    with_tools = prompt_tokens(result)
    assert lives == ["made", "ended"]
    without = replace(result, task=replace(result.task, context=None))
    assert with_tools > prompt_tokens(without)
    lives.clear()
    result.generate("hello", max_new_tokens=4, context=object())
    assert not lives


def test_a_training_is_opened_again_by_the_last_letters_of_its_id(tiny_folder, tmp_path):
    agent = Agent(name="talker", instructions="Talk.")
    result = trainer(tiny_folder, tmp_path, max_steps=1, lora={"r": 4}, agent=agent).train()
    letters = result.run.rpartition("-")[2]
    again = TrainResult.load(letters, runs=tmp_path, agent=agent, family=TALKATIVE)
    assert again.run == result.run
    assert again.summary.steps == 1
    assert isinstance(again.generate("hello", max_new_tokens=8), str)
    with pytest.raises(InvalidInput, match="pass agent="):
        TrainResult.load(letters, runs=tmp_path)
    with pytest.raises(RunNotFound, match="there is no training"):
        TrainResult.load("none", runs=tmp_path)


def test_a_saved_model_gives_the_same_tokens(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path, max_steps=2, lora={"r": 4}).train()
    folders = [
        result.save(tmp_path / "adapter"),
        result.save(tmp_path / "merged", merged=True),
        result.folder.path,
    ]
    settings = json.loads((folders[0] / "sparring.json").read_text())["settings"]
    assert settings["lora"] == {"r": 4}
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        trained = result.model.eval()(input_ids=ids).logits
        for folder in folders:
            loaded = TransformersPolicy.load(str(folder))
            assert torch.allclose(loaded.model(input_ids=ids).logits, trained, atol=1e-5), folder


def test_the_history_of_a_run_is_read_from_its_folder(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path).train()
    assert read_history_rows(RunFolder(result.folder.path)) == result.history
