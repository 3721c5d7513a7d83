import json

import pytest

from sparring.contracts.errors import UnknownModel
from sparring.policies.model_names import resolve_model_name


@pytest.mark.parametrize(
    "written",
    [
        "Qwen/Qwen3-0.6B",
        "hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0",
        "litellm/ollama_chat/hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0",
        "ollama_chat/hf.co/Qwen/Qwen3-0.6B-GGUF",
        "https://huggingface.co/Qwen/Qwen3-0.6B",
    ],
)
def test_every_way_of_writing_a_name_means_one_model(written):
    assert resolve_model_name(written).text == "Qwen/Qwen3-0.6B"


def test_a_folder_with_a_model_is_taken_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model_name(str(tmp_path)).text == str(tmp_path)


@pytest.mark.parametrize("written", ["gpt-5", "", "a/b/c", "../../etc", "Qwen/"])
def test_anything_else_is_refused_with_the_ways_to_write_it(written):
    with pytest.raises(UnknownModel, match=r"Qwen/Qwen3-0\.6B"):
        resolve_model_name(written)


def run_folder(runs, name, kind="train"):
    (runs / name).mkdir(parents=True)
    (runs / name / "spec.json").write_text(json.dumps({"kind": kind}))


def test_the_end_of_a_run_s_id_means_the_training_and_not_its_proof(tmp_path):
    run_folder(tmp_path, "talk-20261116-184334-8542")
    run_folder(tmp_path, "proof-talk-20261116-184334-8542", kind="prove")
    with pytest.raises(UnknownModel, match="talk-20261116-184334-8542 has no checkpoint yet"):
        resolve_model_name(f"{tmp_path}/8542")


def test_an_id_that_several_runs_or_none_end_with_is_refused(tmp_path):
    for day in ("16", "17"):
        run_folder(tmp_path, f"talk-202611{day}-184334-8542")
    with pytest.raises(UnknownModel, match=r"8542: talk-20261116.*, talk-20261117"):
        resolve_model_name(f"{tmp_path}/8542")
    with pytest.raises(UnknownModel, match=r"names no training run; .* 77fe: none"):
        resolve_model_name(f"{tmp_path}/77fe")
