"""Fuzzed model outputs through the real player: no crash, and each ends with a cause."""

import asyncio
import json
import random
from collections import Counter

import pytest
from agents import Agent, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.run_folder.rollout_log import RolloutLog, RolloutWriter


@function_tool
def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@function_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


AGENT = Agent(name="a", tools=[add, echo])
SPECIAL = [
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
]
GOOD = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def fuzzed(rng: random.Random) -> str:
    kinds = [
        lambda: GOOD[: rng.randrange(len(GOOD))],
        lambda: "".join(rng.sample(GOOD, len(GOOD))),
        lambda: _replaced(rng),
        lambda: _call("add", {"a": 10 ** rng.randrange(1, 6000)}),
        lambda: _call("add", {"a": rng.choice(["NaN", 1e308, -1e308, None, [], {}, True, "1"])}),
        lambda: "<tool_call>" + "[" * rng.randrange(1, 20_000) + "</tool_call>",
        lambda: _call("echo", _nested(rng.randrange(1, 900))),
        lambda: _call("echo", {"text": "".join(chr(rng.randrange(32)) for _ in range(40))}),
        lambda: _call("echo", {"text": chr(rng.randrange(0xD800, 0xE000)) * 3}),
        lambda: _call("echo", {"text": "".join(rng.choices(SPECIAL, k=5))}),
        lambda: _call("".join(chr(rng.randrange(1, 0x3000)) for _ in range(8)), {}),
        lambda: "".join(rng.choices([*SPECIAL, "{", "}", '"', "name", ":", " ", "add"], k=30)),
        lambda: "".join(
            chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
            for _ in range(30)
        ),
        lambda: "\n".join([GOOD] * rng.randrange(2, 60)),
        lambda: "",
    ]
    return rng.choice(kinds)()


def _call(name: str, arguments: object) -> str:
    try:
        body = json.dumps({"name": name, "arguments": arguments})
    except ValueError:  # more digits than Python prints
        body = '{"name": "add", "arguments": {"a": ' + "9" * 9000 + "}}"
    return f"<tool_call>{body}</tool_call>"


def _nested(depth: int) -> dict:
    value: dict = {"text": "x"}
    for _ in range(depth):
        value = {"text": value}
    return value


def _replaced(rng: random.Random) -> str:
    letters = list(GOOD)
    for _ in range(rng.randrange(1, 6)):
        letters[rng.randrange(len(letters))] = rng.choice('{}[]",:\\\x00\x1f\u2028ä😀')
    return "".join(letters)


def play_all(outputs, codec, folder):
    async def play():
        policy = ScriptedPolicy(
            lambda request: (
                outputs[int(request.key.rollout.case_id)] if request.key.turn == 0 else "done"
            ),
            codec,
        )
        limits = Limits(completion_tokens=10_000_000, max_turns=2, max_concurrency=32)
        player = Player(AGENT, policy, limits=limits)
        plays = (Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "go")) for n in range(len(outputs)))
        endings: Counter[Ending] = Counter()
        with RolloutWriter(folder) as writer:
            async for played in player.play(plays):
                endings[played.rollout.ending] += 1
                writer.append(played.rollout, 0.0)
                assert played.rollout.ending is not Ending.INFRASTRUCTURE_ERROR, (
                    played.rollout.detail
                )
                if played.rollout.ending is not Ending.ANSWERED:
                    assert played.rollout.detail
        return endings

    endings = asyncio.run(play())
    assert sum(endings.values()) == len(outputs) == len(RolloutLog(folder))
    return endings


def test_fuzzed_outputs_end_with_a_cause(codecs, tmp_path):
    rng = random.Random(1)
    endings = play_all([fuzzed(rng) for _ in range(400)], codecs["qwen3"], tmp_path)
    assert set(endings) >= {Ending.ANSWERED, Ending.UNPARSABLE_CALL}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_ten_thousand_fuzzed_outputs_end_with_a_cause(codecs, tmp_path):
    rng = random.Random(2)
    outputs = [fuzzed(rng) for _ in range(10_000)]
    for index in range(0, 10_000, 1000):  # strings of a megabyte, in calls and by themselves
        outputs[index] = _call("echo", {"text": "x" * 1_000_000})
        outputs[index + 1] = "word " * 200_000
    endings = play_all(outputs, codecs["qwen3"], tmp_path)
    print(dict(endings))
