"""A policy is loaded from its description; what is missing is named with the remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownFamily
from sparring.contracts.specs import EndpointSpec, PolicySpec
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.families import family_named
from sparring.policies.loading import load_codec, load_policy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.policies.vllm_server import VllmPolicy
from tests.families import FORGETFUL

SERVER = EndpointSpec(base_url="http://127.0.0.1:9/v1", model="served")


def test_endpoints_need_no_model() -> None:
    policy = load_policy(PolicySpec(kind="endpoint", endpoints=(SERVER,)))
    assert isinstance(policy, EndpointPolicy)


@pytest.mark.parametrize("agent_model", [None, object()])
def test_without_a_model_the_ways_to_give_one_are_named(agent_model: object) -> None:
    with pytest.raises(InvalidInput, match=r"no model given: pass --model.*Agent\(model="):
        load_policy(PolicySpec(), agent_model)


def test_the_agents_own_model_is_used_if_it_is_a_name(tiny_folder: Path) -> None:
    policy = load_policy(PolicySpec(), str(tiny_folder))
    assert isinstance(policy, TransformersPolicy)
    assert policy.name == str(tiny_folder)


def test_the_model_of_the_spec_goes_before_the_agents(tiny_folder: Path) -> None:
    spec = PolicySpec(kind="vllm", model=str(tiny_folder), endpoints=(SERVER,))
    policy = load_policy(spec, "a/model-that-does-not-exist")
    assert isinstance(policy, VllmPolicy)
    assert policy.name == "served"


def test_a_family_of_the_spec_goes_before_a_declared_one(tiny_folder: Path) -> None:
    spec = PolicySpec(kind="vllm", model=str(tiny_folder), endpoints=(SERVER,))
    declared = load_policy(spec, declared=FORGETFUL)
    named = load_policy(spec.model_copy(update={"family": "smollm2"}), declared=FORGETFUL)
    assert isinstance(declared, VllmPolicy)
    assert isinstance(named, VllmPolicy)
    assert declared.codec.family is FORGETFUL
    assert named.codec.family is family_named("smollm2")
    with pytest.raises(UnknownFamily, match="qwen9"):
        load_policy(spec.model_copy(update={"family": "qwen9"}))


def test_a_codec_is_of_the_declared_family_or_of_the_models_own(tiny_folder: Path) -> None:
    assert load_codec(str(tiny_folder)).family is family_named("qwen3")
    assert load_codec(str(tiny_folder), FORGETFUL).family is FORGETFUL


def test_without_torch_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sparring.policies.transformers_policy")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackage, match=r"needs torch: pip install .*\[local\]'"):
        load_policy(PolicySpec(model="tiny"))


def test_another_missing_module_is_not_taken_for_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sparring.policies.transformers_policy", None)
    with pytest.raises(ModuleNotFoundError, match="transformers_policy"):
        load_policy(PolicySpec(model="tiny"))


def test_rollouts_keep_as_much_between_turns_as_the_setting_says(tiny_folder: Path) -> None:
    kept = load_policy(PolicySpec(model=str(tiny_folder)), kv_cache_memory=0.5)
    by_default = load_policy(PolicySpec(model=str(tiny_folder)))
    assert isinstance(kept, TransformersPolicy)
    assert isinstance(by_default, TransformersPolicy)
    assert [each._turns._budget for each in (kept, by_default)] == [2**29, 2**30]
