"""Publishing weights: a name per version, written aside, the newest kept, older ones loaded."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from sparring.contracts.errors import SettingError
from sparring.contracts.policies import PublishedWeights
from sparring.engine.publisher import ADAPTER_FILE, AdapterVersions, Publisher, refuse_unservable


class Policy:
    def __init__(self) -> None:
        self.used: list[PublishedWeights] = []

    def use(self, weights: PublishedWeights) -> None:
        self.used.append(weights)


def trainer_of(model: Any) -> Any:
    accelerator = SimpleNamespace(unwrap_model=lambda each: each, is_main_process=True)
    state = SimpleNamespace(global_step=0)
    return SimpleNamespace(model=model, accelerator=accelerator, state=state)


@pytest.fixture
def adapted(tiny_folder: Path) -> Any:
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    return get_peft_model(base, LoraConfig(r=4, lora_dropout=0.0, target_modules="all-linear"))


def change(model: Any, amount: float) -> None:
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.fill_(amount)


def test_every_version_has_a_name_with_step_and_digest(adapted: Any, tmp_path: Path) -> None:
    trainer, policy = trainer_of(adapted), Policy()
    publisher = Publisher(trainer, policy, tmp_path, "run")  # type: ignore[arg-type]
    publisher.sync()
    change(adapted, 0.5)
    trainer.state.global_step = 7
    publisher.sync()
    first, second = policy.used
    assert first.name.startswith("run-v000000-")
    assert second.name.startswith("run-v000007-")
    assert (second.version, second.path) == (7, str(tmp_path / second.name))
    assert sorted(each.name for each in tmp_path.iterdir()) == [first.name, second.name]


def test_unfinished_weights_of_a_killed_attempt_are_removed(adapted: Any, tmp_path: Path) -> None:
    (tmp_path / ".staging-1").mkdir()
    policy = Policy()
    Publisher(trainer_of(adapted), policy, tmp_path, "run").sync()  # type: ignore[arg-type]
    assert [each.name for each in tmp_path.iterdir()] == [policy.used[0].name]


def test_equal_weights_in_another_folder_get_another_name(adapted: Any, tmp_path: Path) -> None:
    policy = Policy()
    for place in ("one", "other"):
        Publisher(trainer_of(adapted), policy, tmp_path / place, "run").sync()  # type: ignore[arg-type]
    first, second = policy.used
    assert first.name != second.name


def test_a_resumed_attempt_with_other_weights_gets_another_name(
    adapted: Any, tmp_path: Path
) -> None:
    policy = Policy()
    for amount in (0.1, 0.2, 0.1):
        change(adapted, amount)
        Publisher(trainer_of(adapted), policy, tmp_path, "run").sync()  # type: ignore[arg-type]
    first, second, third = (each.name for each in policy.used)
    assert first == third != second


def test_a_published_adapter_is_one_that_peft_loads(
    adapted: Any, tiny_folder: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    change(adapted, 0.5)
    policy = Policy()
    Publisher(trainer_of(adapted), policy, tmp_path, "run").sync()  # type: ignore[arg-type]
    place = Path(policy.used[0].path)
    config = json.loads((place / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_folder)
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, str(place))
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, adapted(ids).logits)


def test_whole_weights_are_published_with_their_configuration(
    tiny_folder: Path, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    policy = Policy()
    Publisher(trainer_of(model), policy, tmp_path, "run").sync()  # type: ignore[arg-type]
    (published,) = policy.used
    assert not published.is_adapter
    assert (Path(published.path) / "config.json").is_file()
    state = load_file(Path(published.path) / "model.safetensors")
    assert state.keys() == dict(model.named_parameters()).keys()


def test_only_the_newest_versions_are_kept(adapted: Any, tmp_path: Path) -> None:
    trainer, policy = trainer_of(adapted), Policy()
    publisher = Publisher(trainer, policy, tmp_path, "run")  # type: ignore[arg-type]
    (tmp_path / "other-run-v000001-x").mkdir()
    for step in range(5):
        change(adapted, step / 10)
        trainer.state.global_step = step
        publisher.sync()
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"other-run-v000001-x", *(each.name for each in policy.used[2:])}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_dropout": 0.1}, "lora_dropout"),
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "biases"),
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head"),
        ({"modules_to_save": ["embed_tokens"]}, "embeddings"),
    ],
)
def test_an_adapter_that_servers_cannot_serve_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        refuse_unservable(LoraConfig(**options))


def filled(model: Any, amount: float) -> dict[str, torch.Tensor]:
    """The adapter, with this number in all of its B matrices; the model has it too."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.fill_(amount)
    return {name: each.clone() for name, each in get_peft_model_state_dict(model).items()}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(input_ids=torch.tensor([[5, 6, 7]])).logits
        return result


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_the_model_computes_with_the_version_and_is_unchanged_afterwards(
    is_in_memory: bool, adapted: Any, tmp_path: Path
) -> None:
    old = filled(adapted, 0.1)
    by_old = logits(adapted)
    weights = PublishedWeights(3, "run-v3", str(tmp_path))
    versions = AdapterVersions(adapted, 2)
    if is_in_memory:
        versions.keep("run-v3", old)
    else:
        save_file(old, str(tmp_path / ADAPTER_FILE))
    filled(adapted, 0.7)
    by_new = logits(adapted)
    with suppress(KeyError), versions.in_model(weights):
        assert torch.equal(logits(adapted), by_old)
        raise KeyError
    assert torch.equal(logits(adapted), by_new)
    assert not torch.equal(by_new, by_old)


def test_only_the_last_versions_stay_in_memory(adapted: Any, tmp_path: Path) -> None:
    versions = AdapterVersions(adapted, 2)
    for number in range(3):
        versions.keep(f"v{number}", filled(adapted, number / 10))
    lost = PublishedWeights(0, "v0", str(tmp_path))
    with pytest.raises(FileNotFoundError), versions.in_model(lost):
        pass
    with versions.in_model(PublishedWeights(1, "v1", str(tmp_path))):
        pass


def test_partitioned_weights_are_refused_with_the_next_step() -> None:
    weights = torch.nn.Parameter(torch.zeros(1))
    weights.ds_tensor = weights  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="ZeRO-2"):
        AdapterVersions(SimpleNamespace(parameters=lambda: [weights]), 2)
