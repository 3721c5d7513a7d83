"""Wrong fields of lora, quantization and engine are refused before a run exists."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparring.contracts.errors import SettingError
from sparring.operations import engine_tables
from sparring.operations.engine_tables import fields_of
from sparring.operations.operation import Caller
from sparring.operations.training import StartTrain, start_train
from sparring.settings.layers import nested
from tests.operations.handmade import make_free_project, owner_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    make_free_project(tmp_path, monkeypatch)
    return owner_of(tmp_path)


@pytest.fixture
def _read_anew() -> Iterator[None]:
    fields_of.cache_clear()
    yield
    fields_of.cache_clear()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora.rr": 4}, "the command: lora.rr: there is no such setting; did you mean lora.r?"),
        (
            {"engine.bta": 4},
            "the command: engine.bta: there is no such setting; did you mean beta, "
            "without `engine`?",
        ),
        (
            {"quantization.load_in_4bits": True},
            "the command: quantization.load_in_4bits: there is no such setting; "
            "did you mean quantization.load_in_4bit?",
        ),
        (
            {"engine.learning_rate": 1e-4},
            "the command: engine.learning_rate: learning_rate is a setting of Sparring; set it "
            "outside of `engine`",
        ),
        (
            {"engine.bf16": True},
            "the command: engine.bf16: use dtype",
        ),
        (
            {"lora.r": "many"},
            "the command: lora.r: Input should be a valid integer, unable to parse string as an "
            "integer, not 'many'",
        ),
        (
            {"lora.bias": "most"},
            "the command: lora.bias: Input should be 'none', 'all' or 'lora_only', not 'most'",
        ),
    ],
)
def test_a_wrong_field_of_a_table_is_refused_and_leaves_no_run(
    owner: Caller, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingError) as raised:
        start_train(StartTrain(environment="shop", settings=nested(settings)), owner)
    assert str(raised.value) == message
    assert not list(owner.runs.glob("*"))


def test_right_fields_of_every_table_start_a_run(owner: Caller) -> None:
    settings = {
        "lora": {"r": 4, "target_modules": ["q_proj"], "use_rslora": True},
        "engine": {"weight_decay": 0, "loss_type": "dapo"},
        "quantization": {"bnb_4bit_quant_type": "fp4"},
    }
    assert start_train(StartTrain(environment="shop", settings=settings, prove=False), owner).run


def test_the_fields_are_those_of_the_classes() -> None:
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig
    from trl import GRPOConfig

    def public(names: Iterator[str]) -> set[str]:
        return {name for name in names if not name.startswith("_")}

    lora = {each.name for each in dataclasses.fields(LoraConfig)}
    assert public(iter(fields_of("lora"))) == public(iter(lora))
    engine = (each.name for each in dataclasses.fields(GRPOConfig))
    assert public(iter(fields_of("engine"))) == public(engine)
    quantization = inspect.signature(BitsAndBytesConfig).parameters
    assert set(fields_of("quantization")) == set(quantization) - {"kwargs"}


@pytest.mark.usefixtures("_read_anew")
def test_without_the_packages_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert fields_of("lora") == {}


@pytest.mark.usefixtures("_read_anew")
def test_without_the_known_file_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_tables, "_CLASSES", {"lora": (("peft/moved.py", "LoraConfig"),)})
    assert fields_of("lora") == {}


def test_reading_the_fields_imports_no_ml_library() -> None:
    code = (
        "import sys; from sparring.operations.engine_tables import fields_of; "
        "assert all(map(fields_of, ('lora', 'quantization', 'engine'))); "
        "assert not {'torch', 'peft', 'trl', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
