from __future__ import annotations

import json
import shutil

import pytest

from sparring.contracts.errors import UnknownModel
from sparring.policies.pretrained import load_positions, load_tokenizer, load_weights

CODE = "raise SystemExit('this must never run')\n"


@pytest.fixture
def bringing_code(tiny_folder, tmp_path):
    """A model folder that names classes of its own, and holds the file that has them."""
    place = tmp_path / "model"
    shutil.copytree(tiny_folder, place)
    config = json.loads((place / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    config |= {"model_type": "own", "auto_map": own}
    (place / "config.json").write_text(json.dumps(config))
    (place / "own.py").write_text(CODE)
    return str(place)


@pytest.mark.parametrize("load", [load_weights, load_positions])
def test_code_that_a_model_brings_is_refused_and_nobody_is_asked(bringing_code, load):
    with pytest.raises(UnknownModel, match="requires its own code"):
        load(bringing_code)


def test_a_model_that_is_not_there_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnknownModel, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))
