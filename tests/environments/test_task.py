"""What the Python entry points are given: agents of the SDK, functions that run any
other agent, and environments."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, ClassVar

import httpx2
import pytest
from agents import Agent

from sparring import (
    Environment,
    Service,
    Suite,
    TrainResult,
    evaluate,
    failed,
    measure,
    passed,
    train,
)
from sparring.contracts.errors import InvalidInput, RunChanged, UnknownFamily
from sparring.contracts.rollouts import Ending
from sparring.environments.task import as_family, default_settings, played_agent, read_task
from sparring.gateway.agents import GatewayAgent
from sparring.measures import exact
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.training import TALKATIVE, even, questions, talker, weights_digest

SHORT = {
    "max_steps": 2,
    "max_completion_length": 8,
    "cases_per_batch": 2,
    "num_generations": 2,
    "validation_cases": 0,
    "replacement_groups": 0,
    "draw_by_difficulty": False,
    "show_progress": False,
}


def test_a_family_is_given_as_an_object_or_by_name() -> None:
    suite = questions(4)
    for given in (TALKATIVE, "smollm2", None):
        family = read_task(talker(), suite, (even,), family=given).family
        assert family == as_family(given)
        assert (family is None) == (given is None)
    with pytest.raises(UnknownFamily, match="unknown family 'smolm2'; use one of"):
        read_task(talker(), suite, (even,), family="smolm2")


async def talk(case, session):
    """The talker of `tests.training` as a plain HTTP call."""
    messages = [{"role": "system", "content": "Talk."}, *session.messages]
    async with httpx2.AsyncClient(base_url=session.base_url, verify=False, timeout=60) as client:
        body = {"model": session.model, "messages": messages}
        reply = await client.post("/chat/completions", json=body)
    return reply.raise_for_status().json()["choices"][0]["message"]["content"]


@measure
def is_world(rollout: Any) -> Any:
    return passed("its world") if rollout.world == rollout.case.id else failed("another world")


class Talk(Environment):
    """Talks, without the SDK."""

    model = "tiny"
    measures = (even, is_world)
    weights: ClassVar = {"is_world": 0}
    settings: ClassVar = {"max_completion_length": 8, "num_generations": 4, "learning_rate": 1e-3}
    family = TALKATIVE

    async def play(self, case, session):
        assert session.world == case.id
        return await talk(case, session)

    def world(self, case):
        return case.id

    def suite(self):
        return questions(96)


PROGRAM = """
import json, os, urllib.request
case = json.load(open(os.environ["SPARRING_CASE_FILE"]))
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": os.environ["SPARRING_MODEL"], "messages": case["messages"]}).encode(),
    {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


class Command(Environment):
    """A process per rollout."""

    measures = (exact(),)
    command = (sys.executable, "-c", PROGRAM)

    def suite(self):
        return Suite.from_records(
            [{"input": f"q{n}", "expected": f"q{n}", "split": "validation"} for n in range(2)],
            minimum_cases=2,
        )


# ------------------------------------------------------------------ reading


def test_an_agent_of_the_sdk_is_played_as_it_is():
    agent = talker()
    task = read_task(agent, questions(96), [even])
    assert task.agent is agent
    assert (task.context, task.user, task.family) == (None, None, None)


def test_a_function_is_an_agent_behind_the_gateway():
    agent = played_agent(talk)
    assert isinstance(agent, GatewayAgent)
    assert (agent.name, agent.model) == ("talk", None)


def test_arguments_that_are_not_given_come_from_the_environment():
    environment = Talk()
    task = read_task(environment, None, None)
    assert (task.agent.name, task.agent.model) == ("Talk", "tiny")
    assert task.suite.size("training") == 72
    assert dict(task.measures.weights) == {"even": 1.0, "is_world": 0}
    assert task.context == environment.world
    assert task.family is TALKATIVE
    assert default_settings(environment)["num_generations"] == 4


def test_given_arguments_override_those_of_the_environment():
    own, world = questions(96), dict
    task = read_task(Talk(), own, ["length"], weights={}, context=world)
    assert (task.suite, task.measures.weights, task.context) == (own, {"length": 1.0}, world)


def test_other_code_has_another_digest():
    async def other(case, session):
        return await talk(case, session)

    def digest(agent):
        return read_task(agent, questions(96), [even]).digest

    assert digest(talk) == digest(talk)
    named = [digest(each) for each in (talk, other, talker(), Agent(name="x"), Talk(), Command())]
    assert len(set(named)) == len(named)


class Served(Talk):
    """Needs a service."""

    services = (Service("shop", command=["true"]),)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (None, "an Environment or a function play(case, session), not None"),
        ("talk", "not 'talk'"),
        (Talk, "pass an environment, not its class: Talk()"),
        (Suite, "a function play(case, session)"),
        (Served(), "Served needs the services shop"),
        (Environment(), "must define agent(), which returns an Agent, or play(), command or url"),
    ],
    ids=["nothing", "text", "class", "other class", "services", "no agent"],
)
def test_an_object_that_is_no_agent_is_refused_with_what_to_pass(agent, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        read_task(agent, questions(96), [even])


def test_services_that_the_caller_started_are_used():
    environment = Served()
    environment.add_addresses({"shop": "127.0.0.1:1"})
    assert read_task(environment, None, None).agent.name == "Served"


def test_a_function_needs_a_suite():
    with pytest.raises(InvalidInput, match="the suite must be a Suite, not NoneType"):
        read_task(talk, None, [even])


# ------------------------------------------------------------------ evaluating


def test_a_function_is_evaluated_and_proved(tmp_path, codecs):
    def evaluated(answer, name):
        policy = ScriptedPolicy(lambda _: answer, codecs["qwen3"])
        return evaluate(
            talk, questions(96), [even], policy=policy, runs=tmp_path, run=name, show_progress=False
        )

    before, after = evaluated("odd", "before"), evaluated("even", "after")
    assert (before.pass_rates["even"], after.pass_rates["even"]) == (0.0, 1.0)
    assert all(rollout.ending is Ending.ANSWERED for rollout in after.rollouts())
    assert after.compare(before).is_good


def test_an_environment_is_evaluated_by_itself(tmp_path, codecs):
    policy = ScriptedPolicy(lambda _: "even", codecs["qwen3"])
    result = evaluate(Talk(), policy=policy, runs=tmp_path, show_progress=False)
    assert result.pass_rates["is_world"] == 1.0
    spec = json.loads(result.folder.spec.read_text())
    assert spec["play"]["max_completion_length"] == 8
    assert spec["play"]["num_generations"] == 1  # an environment's is for training


def test_a_command_is_evaluated(tmp_path, codecs):
    policy = ScriptedPolicy(lambda _: "q1", codecs["qwen3"])
    result = evaluate(Command(), policy=policy, runs=tmp_path, show_progress=False)
    assert result.pass_rates["exact"] == 0.5


def test_a_changed_function_does_not_resume_a_run(tmp_path, codecs):
    async def other(case, session):
        return await talk(case, session) + "!"

    other.__name__ = "talk"

    def evaluated(function):
        policy = ScriptedPolicy(lambda _: "even", codecs["qwen3"])
        return evaluate(
            function, questions(96), [even], policy=policy, runs=tmp_path, run="r",
            show_progress=False,
        )  # fmt: skip

    first = evaluated(talk)
    assert evaluated(talk).summary.rollouts == first.summary.rollouts
    with pytest.raises(RunChanged, match="code_digest"):
        evaluated(other)


# ------------------------------------------------------------------ training


def test_a_function_is_trained_to_the_weights_of_the_same_agent_on_the_sdk(tiny_folder, tmp_path):
    def trained(agent):
        return train(
            agent, questions(96), [even], model=str(tiny_folder), family=TALKATIVE, runs=tmp_path,
            learning_rate=1e-3, **SHORT,
        )  # fmt: skip

    ours, own = trained(talk), trained(Agent(name="talk", instructions="Talk."))
    assert weights_digest(ours) == weights_digest(own)
    assert [row["loss"] for row in ours.history] == [row["loss"] for row in own.history]
    assert isinstance(ours.generate("question 1", max_new_tokens=8), str)
    with pytest.raises(InvalidInput, match="not an agent of the agents SDK"):
        ours.trained_agent()
    loaded = TrainResult.load(ours.run, runs=tmp_path, agent=talk, family=TALKATIVE)
    assert isinstance(loaded.agent, GatewayAgent)


def test_an_environment_is_trained_by_itself(tiny_folder, tmp_path):
    options = {name: value for name, value in SHORT.items() if name != "max_completion_length"}
    result = train(Talk(), model=str(tiny_folder), runs=tmp_path, **options)
    assert result.summary.steps == 2
    assert result.settings.learning_rate == 1e-3
    assert (result.settings.max_completion_length, result.settings.num_generations) == (8, 2)
    assert all(rollout.ending is not Ending.INFRASTRUCTURE_ERROR for rollout in result.rollouts())
