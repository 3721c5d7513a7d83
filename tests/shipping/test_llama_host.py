"""The host serves on loopback with the chat template of the file, until it is ended."""

from __future__ import annotations

import pytest

from sparring.shipping.artefacts import Artefact
from sparring.shipping.llama_cpp import find_llama_cpp, served
from sparring.shipping.llama_host import main
from tests.shipping.made import has_server


def test_a_model_and_a_port_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port", "1"])
    assert "--model" in capsys.readouterr().err


@pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
def test_llama_cpps_server_answers_under_its_alias_and_ends_with_its_context(
    artefacts: dict[str, Artefact], tmp_path: object
) -> None:
    from pathlib import Path

    place = artefacts["gguf q8_0"].place
    with served(find_llama_cpp(), place, Path(str(tmp_path)) / "log", parallel=2) as server:
        assert server.get("/v1/models")["data"][0]["id"] == "shipped"
        assert server.get("/props")["total_slots"] == 2
        address = server.address
    from sparring.contracts.errors import InfrastructureError
    from sparring.shipping.llama_cpp import LlamaServer

    with pytest.raises(InfrastructureError):
        LlamaServer(address).get("/props")
