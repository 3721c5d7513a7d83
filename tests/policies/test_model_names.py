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
