import pytest

from sparring.contracts.errors import UnknownModel
from sparring.models import cache


def test_a_model_is_built_once_and_found_again(tmp_path, monkeypatch):
    built = []

    def build(folder):
        built.append(folder)
        (folder / "config.json").write_text("{}")
        return folder

    monkeypatch.setitem(cache.BUILDERS, "tiny", build)
    first = cache.development_model("tiny", tmp_path)
    assert cache.development_model("tiny", tmp_path) == first
    assert len(built) == 1
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_a_build_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def build(folder):
        raise RuntimeError("no memory")

    monkeypatch.setitem(cache.BUILDERS, "tiny", build)
    with pytest.raises(RuntimeError):
        cache.development_model("tiny", tmp_path)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_unknown_model_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(UnknownModel, match="tiny, smollm2"):
        cache.development_model("huge", tmp_path)
