"""The stand-in for vLLM answers as the real one: the same requests to both."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from sparring.contracts.policies import PublishedWeights, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.json_http import JsonHttp
from sparring.policies.vllm_server import ModelNotServed, VllmServer
from tests.real_vllm import ADAPTERS, RealServer
from tests.sampling_servers import InProcess
from tests.wide_tiny import wide_tiny

PROMPT = list(range(20, 60))


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wide_tiny(tiny_folder, tmp_path_factory.mktemp("wide"))


@pytest.fixture(
    scope="module",
    params=[
        "stand-in",
        pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.timeout(1800)]),
    ],
)
def address(request: Any, model: Path, tmp_path_factory: Any) -> Iterator[str]:
    if request.param == "stand-in":
        with InProcess(model, has_prefix_cache=True) as server:
            yield server.address
        return
    log = tmp_path_factory.mktemp("vllm") / "log"
    real = RealServer(model, log, *ADAPTERS).start()
    try:
        yield real.wait().address
    finally:
        real.kill()


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = LoraConfig(r=8, lora_dropout=0.0, target_modules="all-linear")
    adapted = get_peft_model(base, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(0, 0.1)
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(folder)
    return adapted.eval(), PublishedWeights(1, "run-v1", str(folder))


def ask(seed: int = 0, stops: bool = False) -> SampleRequest:
    key = SampleKey(RolloutKey(seed, 0, "c", 0), 0)
    return SampleRequest(key, array("i", PROMPT), Sampling(0.7, 12))


def test_a_name_that_is_not_served_is_unknown(address: str) -> None:
    with pytest.raises(ModelNotServed):
        asyncio.run(VllmServer(address).complete("nobody-v9", ask(), []))


def test_an_adapter_is_loaded_by_its_path_and_may_be_loaded_twice(
    address: str, adapter: Any
) -> None:
    async def twice() -> None:
        server = VllmServer(address)
        await server.load_adapter(adapter[1])
        await server.load_adapter(adapter[1])

    asyncio.run(twice())


def test_log_probabilities_are_those_of_the_adapter_at_the_temperature(
    address: str, adapter: Any
) -> None:
    trained, weights = adapter

    async def sample(salt: str) -> Any:
        server = VllmServer(address)
        await server.load_adapter(weights)
        return await server.complete(weights.name, ask(), [], salt=salt)

    for salt in ("", "fresh"):
        drawn = asyncio.run(sample(salt))
        whole = torch.tensor([[*PROMPT, *drawn.ids]])
        with torch.inference_mode():
            logits = trained(input_ids=whole).logits[0, len(PROMPT) - 1 : -1] / 0.7
        ids = torch.tensor([list(drawn.ids)])
        wanted = torch.log_softmax(logits, -1).gather(1, ids.T).squeeze(1)
        assert (torch.tensor(list(drawn.logprobs)) - wanted).abs().max() < 1e-4


def test_the_seed_alone_decides_what_is_drawn(address: str, model: Path) -> None:
    async def draw(seed: int) -> list[int]:
        return list((await VllmServer(address).complete(str(model), ask(seed), [])).ids)

    first, again, other = (asyncio.run(draw(seed)) for seed in (0, 0, 1))
    assert first == again != other


def test_a_stop_token_ends_the_sample_and_is_part_of_it(address: str, model: Path) -> None:
    drawn = asyncio.run(VllmServer(address).complete(str(model), ask(), list(range(509))))
    assert len(drawn.ids) == 1
    assert drawn.finish.value == "stop"


def test_the_server_names_its_model_and_weight_version(address: str, model: Path) -> None:
    async def look() -> tuple[str, Any, Any]:
        server, http = VllmServer(address), JsonHttp(address)
        before = (await http.get("/weight_info", 5)).json()
        await http.post("/update_weight_version", {"new_version": "run-v3"}, 5)
        after = (await http.get("/weight_info", 5)).json()
        return await server.base_model(), before, after

    assert asyncio.run(look()) == (
        str(model),
        {"weight_version": "default"},
        {"weight_version": "run-v3"},
    )


def test_the_server_is_ready_and_tells_its_version(address: str) -> None:
    async def look() -> tuple[bool, str]:
        server = VllmServer(address)
        return await server.is_ready(), await server.version()

    assert asyncio.run(look()) == (True, "0.32.0")
