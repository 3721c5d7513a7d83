"""Loading what is trained: names and objects, adapters, families, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from sparring.contracts.errors import InvalidInput, SettingError, UnknownModel
from sparring.contracts.specs import EndpointSpec, PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.opening import load
from sparring.policies.families import family_named
from tests.families import FORGETFUL

SETTINGS = TrainSettings(device="cpu")


def small_model(dtype: torch.dtype = torch.float32) -> Any:
    config = LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype)


@pytest.fixture
def tokenizer(tiny_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_folder)


def test_a_server_that_nobody_updates_is_refused() -> None:
    server = EndpointSpec(base_url="http://127.0.0.1:1/v1", model="m")
    spec = PolicySpec(kind="vllm", model="m", endpoints=(server,))
    with pytest.raises(SettingError, match="would not update its weights"):
        load(spec, TrainSettings())


@pytest.mark.parametrize("agent_model", [None, object()])
def test_no_model_is_refused_with_where_to_name_one(agent_model: object) -> None:
    with pytest.raises(InvalidInput, match=r"no model to train: pass model=… or --model"):
        load(PolicySpec(), SETTINGS, agent_model=agent_model)


def test_the_spec_names_the_model_and_else_the_agent(tiny_folder: Path) -> None:
    name = str(tiny_folder)
    assert load(PolicySpec(model=name), SETTINGS, agent_model="nowhere/else").name == name
    assert load(PolicySpec(), SETTINGS, agent_model=name).name == name
    with pytest.raises(UnknownModel, match="'/nowhere/else' is neither a folder nor"):
        load(PolicySpec(model="/nowhere/else"), SETTINGS, agent_model=name)


def test_a_named_model_comes_with_tokenizer_and_family_and_can_be_trained(
    tiny_folder: Path,
) -> None:
    loaded = load(PolicySpec(model=str(tiny_folder)), SETTINGS)
    assert loaded.tokenizer.chat_template == loaded.family.template
    assert loaded.peft is None
    weights = list(loaded.model.parameters())
    assert all(each.requires_grad and each.dtype == torch.float32 for each in weights)
    assert loaded.codec().family is loaded.family


def test_a_full_fine_tune_trains_float32_weights_whatever_it_is_given(tokenizer: Any) -> None:
    model = small_model(torch.bfloat16)
    loaded = load(PolicySpec(), SETTINGS, model=model, tokenizer=tokenizer)
    assert {each.dtype for each in loaded.model.parameters()} == {torch.float32}
    assert loaded.name == "a loaded model"


def test_the_base_of_an_adapter_keeps_its_precision(tokenizer: Any) -> None:
    settings = TrainSettings(device="cpu", lora={"r": 4})
    model = small_model(torch.bfloat16)
    loaded = load(PolicySpec(), settings, model=model, tokenizer=tokenizer)
    assert {each.dtype for each in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.peft.r == 4


def test_a_model_object_needs_its_tokenizer() -> None:
    with pytest.raises(InvalidInput, match="needs its tokenizer: pass tokenizer="):
        load(PolicySpec(), SETTINGS, model=small_model())


def test_the_family_in_the_spec_goes_before_the_declared_one(tokenizer: Any) -> None:
    given: dict[str, Any] = {"model": small_model(), "tokenizer": tokenizer}
    declared = load(PolicySpec(), SETTINGS, declared=FORGETFUL, **given)
    assert declared.family is FORGETFUL
    named = load(PolicySpec(family="qwen3"), SETTINGS, declared=FORGETFUL, **given)
    assert named.family == family_named("qwen3")


def test_the_models_own_template_is_kept_beside_that_of_the_family(tokenizer: Any) -> None:
    tokenizer.chat_template = "its own"
    loaded = load(PolicySpec(), SETTINGS, model=small_model(), tokenizer=tokenizer,
                  declared=FORGETFUL)  # fmt: skip
    assert loaded.own_template == "its own"
    assert tokenizer.chat_template == FORGETFUL.template


def adapted(*, is_frozen: bool) -> Any:
    model = get_peft_model(small_model(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    if is_frozen:  # as PEFT loads an adapter for inference
        model.requires_grad_(False)
    return model


@pytest.mark.parametrize("is_frozen", [True, False])
def test_an_adapter_is_trained_and_its_base_is_not(tokenizer: Any, is_frozen: bool) -> None:
    loaded = load(PolicySpec(), SETTINGS, model=adapted(is_frozen=is_frozen), tokenizer=tokenizer)
    trained = {name for name, each in loaded.model.named_parameters() if each.requires_grad}
    assert trained == {name for name, _ in loaded.model.named_parameters() if "lora_" in name}
    assert trained


def test_a_second_adapter_is_refused(tokenizer: Any) -> None:
    settings = TrainSettings(device="cpu", lora=True)
    with pytest.raises(SettingError, match="already has an adapter; remove the setting `lora`"):
        load(PolicySpec(), settings, model=adapted(is_frozen=False), tokenizer=tokenizer)


def test_a_run_starts_no_servers_for_a_model_with_an_adapter(tokenizer: Any) -> None:
    settings = TrainSettings.model_validate({"sampling": {"servers": 1}})
    with pytest.raises(SettingError, match="merge it first"):
        load(PolicySpec(), settings, model=adapted(is_frozen=False), tokenizer=tokenizer)
    own = TrainSettings.model_validate({"sampling": {"servers": ["http://127.0.0.1:1"]}})
    assert load(PolicySpec(), own, model=adapted(is_frozen=False), tokenizer=tokenizer)
