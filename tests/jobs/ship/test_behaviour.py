"""vLLM and Ollama play what is shipped for them. Here, llama.cpp's server answers in their place:
vLLM is run by `pytest -m vllm`, and Ollama has no package for these machines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import MissingPackage
from sparring.contracts.kinds import Form
from sparring.jobs.ship import behaviour
from sparring.shipping.llama_cpp import find_llama_cpp, served
from tests.jobs.ship.made import new_shipment, ship_spec, shipped
from tests.shipping.made import has_server

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed"),
]

FAKE = """#!{python}
import pathlib, sys
from sparring.shipping.llama_host import main
given = sys.argv[1:]
pathlib.Path({seen!r}).write_text(" ".join(given))
assert given[0] == "serve"
port = given[given.index("--port") + 1]
name = given[given.index("--served-model-name") + 1]
file = next(pathlib.Path(given[1]).parent.glob("gguf/*.gguf"))
main(["--model", str(file), "--port", port, "--alias", name])
"""


def test_validation_cases_are_played_on_each_and_the_cards_say_so(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable, seen=str(seen)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    changes = {"vllm": True, "register_with_ollama": True, "cases": 0, "validation_cases": 3}
    forms = (Form.MERGED, Form.GGUF, Form.OLLAMA)
    spec = ship_spec(proved, tmp_path / "out" / "porter", forms=forms, **changes)
    with FakeOllama(monkeypatch, tmp_path):
        summary = shipped(new_shipment(proved, "more", spec))
    merged, gguf = summary["artefacts"]
    assert merged["servers"]["vLLM"]["rollouts"] == 3
    assert gguf["servers"]["Ollama"]["likeness"] in ("equal", "cannot tell")
    assert "--served-model-name porter --max-model-len" in seen.read_text()
    assert "--tool-call-parser hermes" in seen.read_text()
    assert summary["uploads"] == ["registered with Ollama as porter"]
    card = (tmp_path / "out" / "porter" / "proof_card.md").read_text()
    assert "transformers, vLLM" in card
    assert "Ollama: the commands are written" not in card


class FakeOllama:
    """Stands for Ollama: `register` starts llama.cpp's server with the registered file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self._monkeypatch, self._place = monkeypatch, place

    def __enter__(self) -> None:
        self._monkeypatch.setattr(behaviour, "register", self._register)
        self._monkeypatch.setattr(behaviour, "host", lambda: self._server.address)

    def _register(self, folder: Path, name: str, *, has_tools: bool) -> None:
        assert (folder / "Modelfile").read_text().startswith("FROM ./")
        assert name == "porter"
        assert has_tools
        file = next(folder.glob("*.gguf"))
        self._serving = served(find_llama_cpp(), file, self._place / "ollama.log")
        self._server = self._serving.__enter__()

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)


def test_a_missing_vllm_is_refused_before_anything_is_played(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    spec = ship_spec(proved, tmp_path / "porter", vllm=True)
    folder = new_shipment(proved, "none", spec)
    with pytest.raises(MissingPackage, match="vLLM was not found"):
        shipped(folder)
    assert not folder.rollouts_of("checkpoint").exists()
