"""Plays artefacts on vLLM and on a local Ollama, if the spec requests it.

Results are stored under `servers` in the artefact's row, beside those of transformers or
llama.cpp (`behaviour.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from sparring.contracts.cases import Case
from sparring.contracts.ship_specs import Form
from sparring.jobs.ship.behaviour import validation_row
from sparring.jobs.ship.context import ShipContext
from sparring.jobs.ship.playing import served_endpoint
from sparring.jobs.ship.runnable import runnable_of
from sparring.shipping.artefacts import Artefact
from sparring.shipping.how_to_run import vllm_arguments
from sparring.shipping.ollama import host, register
from sparring.shipping.template import shipped_template
from sparring.shipping.vllm import find_vllm, served_by_vllm


@dataclass(frozen=True, slots=True)
class _Server:
    """A server of one artefact: its name, and a context that yields its address."""

    name: str
    artefact: Artefact
    serving: AbstractContextManager[str]


async def play_on_other_servers(
    shipping: ShipContext, artefacts: Sequence[Artefact], cases: Sequence[Case]
) -> None:
    """Play validation cases on vLLM, Ollama or both, as the spec requests. The model is
    registered with Ollama even if there are no cases."""
    for server in _servers(shipping, artefacts, uses_vllm=shipping.spec.vllm and bool(cases)):
        log_name = f"{server.artefact.name}-{server.name}".replace(" ", "-").lower()
        started = time.monotonic()
        with server.serving as address:
            if not cases:
                continue
            policy = served_endpoint(address, shipping.name)
            played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
        row = validation_row(shipping, played, time.monotonic() - started)
        named = shipping.rows[server.artefact.name]
        servers = {**named.servers, server.name: row}
        shipping.rows[server.artefact.name] = named.model_copy(update={"servers": servers})


def _servers(
    shipping: ShipContext, artefacts: Sequence[Artefact], *, uses_vllm: bool
) -> Iterator[_Server]:
    for artefact in artefacts:
        if uses_vllm and artefact.form is not Form.GGUF:
            yield _Server("vLLM", artefact, _vllm(shipping, artefact))
    file = next((each for each in artefacts if each.form is Form.GGUF), None)
    if shipping.spec.register_with_ollama and file is not None:
        yield _Server("Ollama", file, _ollama(shipping, file))


@contextmanager
def _vllm(shipping: ShipContext, artefact: Artefact) -> Iterator[str]:
    """Serve an artefact with vLLM's command in how_to_run.md, but with local paths."""
    template = shipping.folder.path / "checks" / "chat_template.jinja"
    template.parent.mkdir(exist_ok=True)
    template.write_text(shipped_template(shipping.source.template), encoding="utf-8")
    shipped = replace(runnable_of(shipping), context=shipping.context_tokens())
    arguments = vllm_arguments(
        shipped,
        artefact.form,
        folder=str(artefact.place),
        base=shipping.source.base_place,
        template=str(template),
    )
    log = shipping.folder.log(1, f"vllm-{artefact.name}")
    with served_by_vllm(find_vllm(), arguments, log) as address:
        yield address


@contextmanager
def _ollama(shipping: ShipContext, file: Artefact) -> Iterator[str]:
    """Register the model with the local Ollama, where it stays, and yield the server's URL."""
    has_tools = any(each.tools for each in shipping.conversations)
    register(file.place.parent, shipping.name, has_tools=has_tools)
    yield f"{host()}/v1"
