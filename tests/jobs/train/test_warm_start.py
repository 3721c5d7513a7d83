"""A warm start: played, judged, learned, saved as step-0, and the reference from then on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from agents import Agent

from sparring import Suite, evaluate, failed, measure, train
from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import EndpointSpec
from sparring.environments.loading import load_environment
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.run_folder.files import read_lines
from tests.jobs.porter import BELL, DEMONSTRATIONS, porter
from tests.servers import ChatServer, completion
from tests.training import even, questions, trainer, weights_digest

FEW = {"num_train_epochs": 1, "learning_rate": 1e-3}


def test_a_warm_start_ends_with_checkpoint_step_0_and_a_message(tiny_folder, tmp_path):
    result = porter(tiny_folder, tmp_path, warm_start=FEW, max_steps=1).train()
    manifest = json.loads((result.folder.checkpoints / "step-0" / "manifest.json").read_text())
    assert manifest["warm_start"]["demonstrations"] == 64
    assert manifest["warm_start"]["last_loss"] < manifest["warm_start"]["first_loss"]
    messages = [event.get("message", "") for event in read_lines(result.folder.events)]
    assert "warm start: learning from 64 demonstrations" in messages


@pytest.mark.parametrize(
    "settings", [{}, {"lora": {"r": 4, "lora_dropout": 0.0}}], ids=["full", "lora"]
)
def test_the_kl_is_measured_from_the_warm_start(tiny_folder, tmp_path, settings):
    made = porter(
        tiny_folder, tmp_path, warm_start=FEW, measures=[even], max_steps=2, beta=0.1, **settings
    )
    before = [weights.clone() for weights in made.model.parameters() if weights.requires_grad]
    result = made.train()
    moved = [weights for weights in made.model.parameters() if weights.requires_grad]
    assert any(not torch.equal(old, new) for old, new in zip(before, moved, strict=True))
    rows = [row for row in result.history if "kl" in row]
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6), "the first step is at the reference"
    assert rows[1]["kl"] > 0


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.nightly, id="full"),
        pytest.param({"lora": {"r": 4}}, id="lora"),
    ],
)
def test_a_resumed_run_does_not_repeat_its_warm_start(tiny_folder, tmp_path, how):
    settings = {
        "warm_start": FEW, "max_steps": 4, "save_steps": 2, "beta": 0.1, "measures": [even],
        **how,
    }  # fmt: skip
    whole = porter(tiny_folder, tmp_path, run="whole", **settings).train()
    made = porter(tiny_folder, tmp_path, run="cut", **settings)
    made.engine.add_callback(_stop_after(made, 2))
    made.train()
    again = porter(tiny_folder, tmp_path, run="cut", **settings).train()
    messages = [event.get("message", "") for event in read_lines(again.folder.events)]
    assert sum("learning from" in each for each in messages) == 1
    assert weights_digest(whole) == weights_digest(again)
    assert weights_digest(whole) != digest_of(whole.folder.checkpoints / "step-0")


def digest_of(checkpoint):
    files = json.loads((checkpoint / "manifest.json").read_text())["files"]
    return next(about["sha256"] for name, about in files.items() if name.endswith(".safetensors"))


def _stop_after(made, step):
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step == step - 1:
                made.stop()

    return Stop()


def test_demonstrations_that_fail_are_left_out_with_a_message(tiny_folder, tmp_path):
    lines = DEMONSTRATIONS.read_text().splitlines()[:4]
    wrong = json.loads(lines[0])
    wrong["messages"][-1]["content"] = "no"
    path = tmp_path / "shown.jsonl"
    path.write_text("\n".join([*lines[1:], json.dumps(wrong)]))
    warm = {**FEW, "source": str(path)}
    result = porter(tiny_folder, tmp_path, warm_start=warm, max_steps=1).train()
    messages = [event.get("message", "") for event in read_lines(result.folder.events)]
    assert "warm start: demonstrations left out: 1 (answered 'no', not done)" in messages


def test_demonstrations_that_nobody_can_judge_are_not_trusted(tiny_folder, tmp_path):
    with pytest.raises(InvalidInput, match="no measure could judge it"):
        porter(tiny_folder, tmp_path, warm_start=FEW, measures=["exact"], max_steps=1).train()


def test_a_stop_reaches_the_warm_start_and_leaves_no_half_of_it(tiny_folder, tmp_path):
    made = porter(tiny_folder, tmp_path, run="cut", warm_start=FEW, max_steps=2)
    made.stop()
    made.train()
    folder = tmp_path / "cut"
    assert not (folder / "checkpoints" / "step-0").exists()
    again = porter(tiny_folder, tmp_path, run="cut", warm_start=FEW, max_steps=2).train()
    whole = porter(tiny_folder, tmp_path, run="whole", warm_start=FEW, max_steps=2).train()
    assert weights_digest(again) == weights_digest(whole)


@measure
def never(rollout):
    return failed("nothing is good enough")


def test_where_no_demonstration_passes_the_run_fails_with_the_reason(tiny_folder, tmp_path):
    with pytest.raises(InvalidInput, match=r"none of 64 demonstrations passes; .* nothing is good"):
        porter(tiny_folder, tmp_path, warm_start=FEW, measures=[never], max_steps=1).train()


def test_a_source_that_is_neither_file_nor_run_is_refused(tiny_folder, tmp_path):
    warm = {**FEW, "source": "nowhere"}
    with pytest.raises(InvalidInput, match="neither a file of demonstrations nor a run"):
        porter(tiny_folder, tmp_path, warm_start=warm, max_steps=1).train()


def test_passing_rollouts_of_another_run_are_demonstrations(tiny_folder, tmp_path):
    shown = trainer(tiny_folder, tmp_path, run="teacher", max_steps=2).train()
    passing = [each for each in shown.rollouts() if each.reward == 1]
    warm = {"source": "teacher", "num_train_epochs": 1}
    made = trainer(tiny_folder, tmp_path, run="pupil", max_steps=1, warm_start=warm).train()
    manifest = json.loads((made.folder.checkpoints / "step-0" / "manifest.json").read_text())
    assert 0 < manifest["warm_start"]["demonstrations"] <= len(passing)


def a_teacher(request):
    """Knows the bell: rings, then says so."""
    has_rung = any(message["role"] == "tool" for message in request["messages"])
    reply = (
        completion("done") if has_rung else completion(calls=[{"name": "ring", "arguments": "{}"}])
    )
    return 200, reply


def test_a_larger_model_behind_an_endpoint_is_a_teacher(tiny_folder, tmp_path):
    bell = load_environment(f"{BELL / 'bell.py'}:Bell")
    with ChatServer() as server:
        server.answer = a_teacher
        policy = EndpointPolicy([EndpointSpec(base_url=server.url, model="large")])
        evaluate(
            bell.agent(), bell.suite(), bell.measures, policy=policy, split="training", cases=24,
            runs=tmp_path, run="teacher",
        )  # fmt: skip
    warm = {**FEW, "source": "teacher"}
    made = porter(tiny_folder, tmp_path, warm_start=warm, max_steps=1).train()
    manifest = json.loads((made.folder.checkpoints / "step-0" / "manifest.json").read_text())
    assert manifest["warm_start"]["demonstrations"] == 24


def test_a_world_model_is_refused_for_an_agent_without_tools(tmp_path):
    agent, suite = Agent(name="talker"), questions()
    assert isinstance(suite, Suite)
    with pytest.raises(InvalidInput, match="has no tools"):
        train(agent, suite, ["contains"], model="tiny", echo_coefficient=0.05, runs=tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_model_that_never_calls_a_tool_learns_to_and_then_gets_better(tmp_path):
    """The whole story in one command."""
    command = f"""
        train {BELL / "bell.py"}:Bell --model tiny --warm-start {DEMONSTRATIONS}
        --set warm_start.num_train_epochs=40 --set warm_start.learning_rate=3e-3
        --max-steps 24 --cases-per-batch 8 --gradient-accumulation-steps 1 --num-generations 8
        --learning-rate 3e-4 --set beta=0.1 --max-completion-length 128 --max-turns 2
        --set mask_truncated_completions=false --validation-cases 20 --save-steps 12 --json
    """
    script = Path(sys.executable).with_name("sparring")
    untrained = subprocess.run(
        [script, "eval", f"{BELL / 'bell.py'}:Bell", "--model", "tiny", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert json.loads(untrained.stdout)["measures"]["got_in"]["pass_rate"]["value"] == 0
    done = subprocess.run(
        [script, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    warm, trained = (row["reward"] for row in json.loads(done.stdout)["validation"])
    assert 0.5 <= warm <= 0.85, "the demonstrations ring as often as they knock"
    assert trained >= 0.9
    assert trained > warm
