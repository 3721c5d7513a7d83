import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agents import Agent, function_tool

from sparring.api.evaluation import evaluate
from sparring.contracts.errors import InvalidInput, RunChanged, SparringError
from sparring.contracts.policies import SampleRequest
from sparring.jobs.worker import hold_run
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.policies.transformers_policy import LockstepBatches
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutLog
from sparring.suites import Suite
from tests.rollouts import call

HERE = Path(__file__).parents[1] / "jobs"


@function_tool
async def wait() -> str:
    """Takes a random time."""
    await asyncio.sleep(random.random() * 0.02)
    return "waited"


AGENT = Agent(name="a", tools=[wait])
SUITE = Suite.from_records([{"input": f"q{n}", "split": "validation"} for n in range(30)])


class ScriptedBatches(ScriptedPolicy):
    """A script that plays in lockstep batches, so that block and resume logic is the real one."""

    samples_in_lockstep = True

    def __init__(self, script, codec, dies_at: int | None = None):
        super().__init__(script, codec)
        self._batches = LockstepBatches(self._generate)
        self._left = dies_at

    def join(self):
        self._batches.join()

    def leave(self):
        self._batches.leave()

    async def sample(self, request):
        return await self._batches.sample(request)

    def _generate(self, requests):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return [asyncio.run(ScriptedPolicy.sample(self, request)) for request in requests]


def script(request: SampleRequest) -> str:
    rng = random.Random(request.key.seed())
    return call("wait") if rng.random() < 0.4 else f"answer {rng.randrange(1000)}"


def play(tmp_path, name, codec, **options):
    policy = options.pop("policy", None) or ScriptedBatches(script, codec)
    return evaluate(
        AGENT,
        options.pop("suite", SUITE),
        ["length"],
        policy=policy,
        runs=tmp_path,
        run=name,
        max_concurrency=8,
        num_generations=2,
        show_progress=False,
        **options,
    )


def shards(folder: RunFolder) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rollouts().glob("*.jsonl"))]


@pytest.fixture
def codec(codecs):
    return codecs["qwen3"]


def test_an_evaluation_repeats_byte_for_byte_whatever_the_timing_of_tools(tmp_path, codec):
    first, second = (play(tmp_path, name, codec) for name in ("first", "second"))
    assert shards(first.folder) == shards(second.folder)
    assert first.summary.rollouts == 60
    assert first.summary.tool_calls["wait"] > 0


@pytest.mark.parametrize("dies_at", [1, 4, 7, 12])
def test_an_interrupted_evaluation_resumes_to_the_same_bytes(tmp_path, codec, dies_at):
    whole = play(tmp_path, "whole", codec)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "broken", codec, policy=ScriptedBatches(script, codec, dies_at))
    kept = len(RolloutLog(RunFolder(tmp_path / "broken").rollouts()))
    assert kept < 60
    resumed = play(tmp_path, "broken", codec)
    assert shards(resumed.folder) == shards(whole.folder)
    assert resumed.summary.measures == whole.summary.measures
    assert resumed.summary.tokens == whole.summary.tokens


def test_with_a_server_only_the_missing_rollouts_are_played(tmp_path, codec):
    requested = []

    def counting(request):
        requested.append(request.key.rollout.id)
        if len(requested) == 21:
            raise KeyboardInterrupt
        return "fine"

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "run", codec, policy=ScriptedPolicy(counting, codec))
    kept = len(RolloutLog(RunFolder(tmp_path / "run").rollouts()))
    before = len(requested)
    result = play(tmp_path, "run", codec, policy=ScriptedPolicy(counting, codec))
    assert len(requested) - before == 60 - kept
    assert len({rollout.id for rollout in result.rollouts()}) == 60


def test_another_suite_is_refused_on_resuming(tmp_path, codec):
    play(tmp_path, "run", codec, cases=4)
    other = Suite.from_records([{"input": f"p{n}", "split": "validation"} for n in range(30)])
    with pytest.raises(RunChanged, match="started on another suite"):
        play(tmp_path, "run", codec, cases=4, suite=other)


def test_other_settings_are_refused_on_resuming_with_what_differs(tmp_path, codec):
    play(tmp_path, "run", codec, cases=4)
    with pytest.raises(RunChanged, match=r"cases: 4 → 6"):
        play(tmp_path, "run", codec, cases=6)
    with pytest.raises(RunChanged, match="policy"):
        play(tmp_path, "run", codec, cases=4, policy=ScriptedPolicy(script, codec, "other"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "foo"}, "'training', 'validation' or 'held-out'"),
        ({"temperature": -1}, "temperature: "),
        ({"temprature": 1}, "there are num_generations, temperature"),
        ({"cases": 0}, "cases: "),
        ({"run": "../../etc"}, "cannot be called"),
        ({"agent": None}, "a function play(case, session)"),
        ({"suite": [1]}, "Suite.from_records"),
    ],
)
def test_a_wrong_argument_in_python_is_refused_with_the_remedy(tmp_path, codec, options, message):
    arguments = {"agent": AGENT, "suite": SUITE, "measures": ["length"], **options}
    with pytest.raises(InvalidInput, match=re.escape(message)):
        evaluate(**arguments, policy=ScriptedPolicy(script, codec), runs=tmp_path)


def test_two_processes_never_write_the_same_run(tmp_path, codec):
    result = play(tmp_path, "run", codec, cases=4)
    with hold_run(result.folder), pytest.raises(SparringError, match="another process"):
        play(tmp_path, "run", codec, cases=4)


def test_held_out_cases_are_played_only_on_request_which_the_spec_records(tmp_path, codec):
    suite = Suite.from_records(
        [{"input": f"q{n}", "split": "held-out" if n % 2 else "validation"} for n in range(60)]
    )
    plain = play(tmp_path, "plain", codec, suite=suite)
    assert {rollout.case.split.value for rollout in plain.rollouts()} == {"validation"}
    proof = play(tmp_path, "proof", codec, suite=suite, split="held-out")
    assert proof.summary.split == "held-out"
    assert proof.folder.read_spec()["split"] == "held-out"


def start_worker(folder: RunFolder) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "sparring.jobs", str(folder.path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def new_run(path: Path, model: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.create(
        {
            "format": 1,
            "kind": "eval",
            "target": f"{HERE / 'agent_file.py'}:Waiting",
            "policy": {"model": str(model)},
            "play": {"max_completion_length": 160, "max_concurrency": 8, "num_generations": 2},
        }
    )
    return folder


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_a_worker_killed_in_the_middle_resumes_to_the_same_bytes(tmp_path, tiny_folder):
    """kill -9 of a real worker with the tiny model."""
    whole = new_run(tmp_path / "whole", tiny_folder)
    assert start_worker(whole).wait(timeout=120) == 0
    total = len(RolloutLog(whole.rollouts()))
    assert total == 96
    assert sum(entry.tool_calls for entry in RolloutLog(whole.rollouts()).entries()) > 50
    folder = new_run(tmp_path / "killed", tiny_folder)
    worker = start_worker(folder)
    while len(RolloutLog(folder.rollouts())) < 41 and worker.poll() is None:
        time.sleep(0.002)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    kept = len(RolloutLog(folder.rollouts()))
    assert start_worker(folder).wait(timeout=120) == 0
    assert shards(folder) == shards(whole), kept


@pytest.mark.nightly
def test_a_worker_that_gets_sigterm_reports_stopped_and_resumes(tmp_path, tiny_folder):
    folder = new_run(tmp_path / "run", tiny_folder)
    worker = start_worker(folder)
    while len(RolloutLog(folder.rollouts())) < 8 and worker.poll() is None:
        time.sleep(0.002)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 103
    assert json.loads(folder.events.read_text().splitlines()[-1])["event"] == "stopped"
    assert start_worker(folder).wait(timeout=120) == 0
    assert len(RolloutLog(folder.rollouts())) == 96


def test_rollouts_that_broke_are_played_again_on_resuming(tmp_path, codec):
    def down(request):
        raise ConnectionError("down")

    first = play(tmp_path, "run", codec, policy=ScriptedPolicy(down, codec))
    assert first.summary.endings == {"infrastructure_error": 60}
    again = play(tmp_path, "run", codec, policy=ScriptedPolicy(lambda request: "up", codec))
    assert again.summary.endings == {"answered": 60}
    assert again.summary.unscored == 0


def test_a_model_behind_a_server_is_named_with_its_address(tmp_path, chat_server):
    result = evaluate(
        Agent(name="a"), SUITE, ["length"], model=f"small@{chat_server.url}", cases=2,
        runs=tmp_path, show_progress=False,
    )  # fmt: skip
    assert (result.summary.rollouts, result.summary.policy) == (2, "small")
    assert {each["model"] for each in chat_server.requests} == {"small"}
    with pytest.raises(InvalidInput, match="must not carry a user"):
        evaluate(AGENT, SUITE, ["length"], model="small@http://me:key@host/v1", runs=tmp_path)
