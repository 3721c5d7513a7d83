"""A real vLLM server on a CPU, spoken to by token ids. Opt in with `pytest -m vllm`.

vLLM wants versions of its own, so it lives in an environment of its own: `make vllm-venv`
makes `.venv-vllm` (3.5 GB), and `SPARRING_VLLM_PYTHON` names another one.
"""

import asyncio
import sys
from array import array
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.specs import EndpointSpec
from sparring.models.cache import development_model
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named, recognise
from sparring.policies.pretrained import load_tokenizer
from sparring.policies.vllm_server import VllmPolicy
from tests.real_vllm import RealServer
from tests.servers import ChatServer

ROOT = Path(__file__).parents[2]


def request(prompt, case="c", temperature=0.7):
    key = SampleKey(RolloutKey(0, 0, case, 0), 0)
    return SampleRequest(key, array("i", prompt), Sampling(temperature, 40))


def policy_of(server: EndpointSpec) -> VllmPolicy:
    tokenizer = load_tokenizer(server.model)
    return VllmPolicy(server, tokenizer, recognise(tokenizer))


def test_a_server_that_returns_no_token_ids_is_refused(codecs):
    body = {"choices": [{"index": 0, "text": "x", "finish_reason": "stop", "logprobs": None}]}
    with ChatServer() as server:
        server.answer = lambda request: (200, {"id": "x", "object": "text_completion", **body})
        spec = EndpointSpec(base_url=server.url, model="fake")
        policy = VllmPolicy(spec, codecs["qwen3"].tokenizer, family_named("qwen3"))
        with pytest.raises(InfrastructureError, match="returns no token ids"):
            asyncio.run(policy.sample(request([1, 2])))
        sent = server.requests[0]
    assert sent["prompt"] == [1, 2]
    assert sent["return_token_ids"] is True
    assert sent["stop_token_ids"] == sorted(
        ChatCodec(policy.codec.tokenizer, family_named("qwen3")).stop_ids
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = development_model("smollm2")
    running = RealServer(folder, tmp_path_factory.mktemp("vllm") / "log").start()
    try:
        yield EndpointSpec(base_url=f"{running.wait().address}/v1", model=str(folder))
    finally:
        running.kill()


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_log_probabilities_are_those_of_the_temperature_scaled_softmax(server):
    import torch
    from transformers import AutoModelForCausalLM

    policy = policy_of(server)
    model = AutoModelForCausalLM.from_pretrained(server.model, dtype=torch.float32)
    prompt = policy.codec._tokenise(
        "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n"
    )[0]
    for temperature in (0.7, 1.3):
        sample = asyncio.run(policy_of(server).sample(request(prompt, temperature=temperature)))
        whole = torch.tensor([[*prompt, *sample.ids]])
        with torch.inference_mode():
            logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1] / temperature
        wanted = (
            torch.log_softmax(logits, -1).gather(1, torch.tensor([list(sample.ids)]).T).squeeze(1)
        )
        gap = (torch.tensor(list(sample.logprobs)) - wanted).abs().max().item()
        print({"temperature": temperature, "tokens": len(sample.ids), "largest_gap": gap})
        assert gap < 1e-3


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_more_prompts_at_once_than_a_batch_can_hold_are_all_answered(server):
    """vLLM computes prompts in parts to fill its batches, which ends a server on a CPU."""
    policy = policy_of(server)
    prompts = [[*range(20 + number, 920 + number)] for number in range(12)]

    async def play():
        requests = (request(prompt, case=f"c{n}") for n, prompt in enumerate(prompts))
        return await asyncio.gather(*(policy.sample(each) for each in requests))

    assert all(sample.ids for sample in asyncio.run(play()))


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_the_calculator_is_played_by_token_ids(server, tmp_path):
    sys.path.insert(0, str(ROOT / "examples" / "calculator"))
    from calculator import Calculator
    from sparring import evaluate

    environment = Calculator()
    result = evaluate(
        environment.agent(),
        environment.suite(),
        environment.measures,
        examples=environment.examples,
        policy=policy_of(server),
        cases=64,
        max_completion_length=96,
        max_concurrency=32,
        runs=tmp_path,
        show_progress=False,
    )
    print(result)
    print(result.summary.endings, result.summary.tokens, result.summary.seconds)
    assert set(result.summary.endings) <= {
        "answered",
        "token_budget",
        "unparsable_call",
        "turn_limit",
    }
    for rollout in result.rollouts():
        (row,) = rollout.rows
        assert sum(row.mask()) == len(row.logprobs) == rollout.tokens.sampled
        assert all(logprob <= 0 for logprob in row.logprobs)
