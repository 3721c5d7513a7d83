"""What was proved is in the folder: with agent.json and the merged model alone, the prompts of the
proof can be made, and a folder that gives another prompt is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.kinds import Form
from sparring.jobs.ship.playing import CHECKPOINT, WITHOUT_EXAMPLES
from sparring.run_folder import RunFolder
from sparring.run_folder.sharded_log import read_rollouts
from sparring.shipping.conversations import trained_ids
from sparring.shipping.shipped_agent import AGENT
from tests.jobs.ship.made import PROOF, make_project, new_shipment, rewrite, ship_spec, shipped

EXAMPLES = '(worked_example("hello Zoe", call(ring), answer="done"),)'
# Reads the folder only. Prints the ids of the prompt of each question.
BY_FOLDER = """
import json, sys
from pathlib import Path
from transformers import AutoTokenizer

shipped = json.loads(Path("agent.json").read_text())
agent = shipped["agents"][0]
tokenizer = AutoTokenizer.from_pretrained("merged")
for message in shipped["examples"]:
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
for question in json.loads(sys.argv[1]):
    system = {"role": "system", "content": agent["instructions"]}
    messages = [system, *shipped["examples"], {"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(
        messages, tools=agent["tools"], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    print(json.dumps(list(ids)))
"""


@pytest.fixture(scope="module")
def runs(tiny_folder: Path, warm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose agent has one worked example, proved."""
    place = tmp_path_factory.mktemp("shown")
    return make_project(place, tiny_folder, warm_folder, shows=EXAMPLES)


@pytest.fixture(scope="module")
def delivered(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("delivered") / "porter"
    spec = ship_spec(runs, place, forms=(Form.MERGED,), cases=0)
    return shipped(new_shipment(runs, "0001", spec))


def test_a_process_that_reads_the_folder_alone_makes_the_proved_prompts(
    delivered: dict[str, Any], runs: Path
) -> None:
    proved = read_rollouts([RunFolder(runs / PROOF).rollouts_of("trained")])[:6]
    questions = json.dumps([each.case.input for each in proved])
    done = subprocess.run(
        [sys.executable, "-c", BY_FOLDER, questions],
        cwd=delivered["to"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [trained_ids(each).tolist() for each in proved]


def test_agent_json_holds_the_examples_as_chat_messages(delivered: dict[str, Any]) -> None:
    content = json.loads((Path(delivered["to"]) / AGENT).read_text())
    requests, called, message, answered = content["examples"]
    assert (requests["content"], answered["content"]) == ("hello Zoe", "done")
    assert called["tool_calls"][0]["function"] == {"name": "ring", "arguments": "{}"}
    assert message["content"] == "ding dong, come in"
    assert message["tool_call_id"] == called["tool_calls"][0]["id"]
    assert content["agents"][0]["name"] == "porter"


def test_the_checkpoint_also_plays_without_the_examples(
    delivered: dict[str, Any], runs: Path
) -> None:
    row = delivered["without_examples"]
    assert (row["examples"], row["cases"]) == (1, 6)
    folder = RunFolder(runs / delivered["run"])
    (with_them, without) = (
        read_rollouts([folder.rollouts_of(name)]) for name in (CHECKPOINT, WITHOUT_EXAMPLES)
    )
    assert [each.case.id for each in with_them] == [each.case.id for each in without]
    assert all(
        len(trained_ids(w)) > len(trained_ids(o)) for w, o in zip(with_them, without, strict=True)
    )
    assert "without the worked example:" in (Path(delivered["to"]) / "proof_card.md").read_text()


def test_every_page_of_the_folder_says_that_requests_send_the_examples(
    delivered: dict[str, Any],
) -> None:
    place = Path(delivered["to"])
    assert '*shipped["examples"]' in (place / "how_to_run.md").read_text()
    for name in ("README.md", "proof_card.md"):
        assert "measured with the 1 worked example in `agent.json`" in (place / name).read_text()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"examples": []}, "agent.json does not give the prompt that was proved"),
        ({"agents": []}, "agent.json has no instructions and tools of porter"),
    ],
)
def test_an_agent_json_that_gives_another_prompt_is_refused(
    runs: Path, tmp_path: Path, delivered: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    spec = ship_spec(runs, tmp_path / "porter", forms=(Form.MERGED,), cases=0, validation_cases=1)
    (name,) = changes
    folder = new_shipment(runs, f"without-{name}", spec)
    staging = tmp_path / f".porter.{folder.id}.partial"  # as an earlier attempt left it
    staging.mkdir()
    (staging / AGENT).write_bytes((Path(delivered["to"]) / AGENT).read_bytes())
    rewrite(staging / AGENT, **changes)
    summary = shipped(folder)
    assert summary["verdict"] == "refused"
    assert summary["problem"].startswith(problem)
    assert list(tmp_path.iterdir()) == []
