"""Training an adapter on a 4-bit base, really, on a CPU: it learns, resumes, and is loaded again on
the weights that it was trained on."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from sparring.policies.pretrained import load_weights, quantization_of
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.shipping.artefacts import write_merged
from sparring.shipping.source import open_source
from tests.training import TALKATIVE, trainer, weights_digest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        find_spec("bitsandbytes") is None,
        reason="bitsandbytes is not installed; `make sharded` installs it",
    ),
]
SETTINGS = {
    "quantization": True,
    "learning_rate": 5e-3,
    "max_steps": 2,
    "save_steps": 1,
    "save_total_limit": 9,
}


@pytest.fixture(scope="module")
def trained(tiny_folder, tmp_path_factory):
    return trainer(tiny_folder, tmp_path_factory.mktemp("runs"), run="whole", **SETTINGS).train()


def test_a_training_that_was_stopped_resumes_to_the_same_adapter(trained, tiny_folder, tmp_path):
    parts = trainer(tiny_folder, tmp_path, run="parts", **SETTINGS).train()
    assert weights_digest(parts) == weights_digest(trained)
    last = list_checkpoints(parts.folder.checkpoints)[-1]
    last.path.rename(tmp_path / "aside")
    resumed = trainer(tiny_folder, tmp_path, run="parts", **SETTINGS).train()
    assert weights_digest(resumed) == weights_digest(trained)


def test_a_checkpoint_is_loaded_and_merged_on_the_weights_that_it_was_trained_on(
    trained, tiny_folder, tmp_path
):
    checkpoint = list_checkpoints(trained.folder.checkpoints)[-1].path
    assert quantization_of(checkpoint)["load_in_4bit"]
    ids = torch.arange(5, 45)[None]
    with torch.no_grad():
        played = trained.policy.model.eval()(ids).logits
        loaded = load_weights(str(checkpoint), dtype=torch.float32).eval()(ids).logits
        assert torch.equal(loaded, played)
        merged = tmp_path / "merged"
        merged.mkdir()
        write_merged(open_source(checkpoint, str(tiny_folder), TALKATIVE), merged)
        shipped = load_weights(str(merged), dtype=torch.float32).eval()(ids).logits
        base = load_weights(str(tiny_folder), dtype=torch.float32).eval()(ids).logits
    assert (shipped - played).abs().max() < 1e-3
    assert (base - played).abs().max() > 1e-2
