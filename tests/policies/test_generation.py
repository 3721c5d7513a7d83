from array import array

import pytest
import torch

from sparring.contracts.policies import Finish, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.caches import TurnCache, sharing_groups
from sparring.policies.generation import generate


def request(prompt, index=0, *, temperature=1.0, max_tokens=24, case="c"):
    key = SampleKey(RolloutKey(0, 0, case, index), 0)
    return SampleRequest(key, array("i", prompt), Sampling(temperature, max_tokens))


def prompts(policy, count):
    common = list(range(40, 80))
    return [[*common, *range(100 + n, 103 + 3 * n)] for n in range(count)]


def reference(model, prompt, ids, temperature):
    """Log-probabilities by one plain forward pass over the whole sequence."""
    whole = torch.tensor([[*prompt, *ids]])
    with torch.inference_mode():
        logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor([ids]).T).squeeze(1)


@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.0, 1.5])
def test_log_probabilities_equal_those_of_a_plain_forward_pass(tiny_policy, temperature):
    model, stops = tiny_policy.model, tiny_policy.codec.stop_ids
    requests = [
        request(prompt, index, temperature=temperature)
        for prompt in prompts(tiny_policy, 5)
        for index in range(3)
    ]
    for each, sample in zip(requests, generate(model, requests, stops), strict=True):
        wanted = reference(model, list(each.prompt), list(sample.ids), temperature)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)


def test_prompts_of_several_agents_in_one_batch_are_sampled_as_alone(tiny_policy):
    begins = [list(range(40, 80)), list(range(90, 150)), list(range(200, 230))]
    requests = [
        request([*begins[n % 3], *range(100 + n, 102 + 2 * n)], index, case=f"c{n}")
        for n in range(9)
        for index in range(2)
    ]
    assert len(sharing_groups([list(each.prompt) for each in requests[::2]])) == 3
    together = generate(
        tiny_policy.model, requests, frozenset(), turns=(turns := TurnCache(1 << 30))
    )
    for each, sample in zip(requests, together, strict=True):
        wanted = reference(tiny_policy.model, list(each.prompt), list(sample.ids), 1.0)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)
        continued = SampleRequest(
            each.key, each.prompt + sample.ids + array("i", [7]), each.sampling
        )
        assert turns.take(continued) is not None


def test_prompts_of_one_token_and_without_anything_in_common_work(tiny_policy):
    requests = [request([5]), request([9, 8, 7], case="d"), request(list(range(50, 90)), case="e")]
    samples = generate(tiny_policy.model, requests, frozenset())
    for each, sample in zip(requests, samples, strict=True):
        wanted = reference(tiny_policy.model, list(each.prompt), list(sample.ids), 1.0)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)


def test_rows_may_end_at_different_lengths(tiny_policy):
    requests = [request([5, 6, 7], n, max_tokens=3 + 7 * n) for n in range(5)]
    samples = generate(tiny_policy.model, requests, frozenset())
    assert [len(sample.ids) for sample in samples] == [3, 10, 17, 24, 31]
    for each, sample in zip(requests, samples, strict=True):
        wanted = reference(tiny_policy.model, list(each.prompt), list(sample.ids), 1.0)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)


def test_a_stop_token_ends_the_sample_and_is_part_of_it(tiny_policy):
    everything = frozenset(range(len(tiny_policy.tokenizer)))
    (sample,) = generate(tiny_policy.model, [request([5, 6])], everything)
    assert len(sample.ids) == 1
    assert sample.finish is Finish.STOP


def test_siblings_differ_and_repeats_do_not(tiny_policy):
    requests = [request([5, 6, 7], index) for index in range(4)]
    first = generate(tiny_policy.model, requests, frozenset())
    again = generate(tiny_policy.model, requests, frozenset())
    assert [sample.ids for sample in first] == [sample.ids for sample in again]
    assert [sample.logprobs for sample in first] == [sample.logprobs for sample in again]
    assert len({sample.ids.tobytes() for sample in first}) == 4


def test_temperature_zero_takes_the_likeliest_token(tiny_policy):
    (sample,) = generate(tiny_policy.model, [request([5, 6], temperature=0.0)], frozenset())
    whole = torch.tensor([[5, 6, *sample.ids]])
    with torch.inference_mode():
        best = tiny_policy.model(input_ids=whole).logits[0, 1:-1].argmax(-1)
    assert best.tolist() == list(sample.ids)


def test_tokens_are_drawn_as_often_as_their_probability_says(tiny_policy):
    """Inverse transform sampling, checked on the most likely token of one prompt."""
    requests = [request([5, 6], index, max_tokens=1, temperature=0.3) for index in range(4000)]
    samples = generate(tiny_policy.model, requests, frozenset())
    with torch.inference_mode():
        logits = tiny_policy.model(input_ids=torch.tensor([[5, 6]])).logits[0, -1].float() / 0.3
    share, token = torch.softmax(logits, -1).max(-1)
    seen = sum(sample.ids[0] == int(token) for sample in samples) / len(samples)
    assert abs(seen - float(share)) < 4 * (float(share) * (1 - float(share)) / 4000) ** 0.5


def test_sliding_windows_see_the_same_tokens_in_a_batch_as_alone():
    """Padding between a shared prefix and the rest would push tokens out of the window."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=24,
    )
    model = MistralForCausalLM(config).eval()
    common = list(range(40, 80))
    requests = [request([*common, *range(100, 103 + 9 * n)], case=str(n)) for n in range(3)]
    for each, sample in zip(requests, generate(model, requests, frozenset()), strict=True):
        wanted = reference(model, list(each.prompt), list(sample.ids), 1.0)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)


def test_recurrent_layers_see_the_same_tokens_in_a_batch_as_alone():
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(0)
    config = Lfm2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        layer_types=["conv", "full_attention"],
    )
    model = Lfm2ForCausalLM(config).eval()
    common = list(range(40, 80))
    requests = [
        request([*common, *range(100, 103 + 9 * n)], case=str(n), max_tokens=4 + 8 * n)
        for n in range(3)
    ]
    for each, sample in zip(requests, generate(model, requests, frozenset()), strict=True):
        wanted = reference(model, list(each.prompt), list(sample.ids), 1.0)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-4)


def test_a_model_in_training_mode_is_sampled_without_dropout(tiny_policy):
    model = tiny_policy.model
    layers = [layer.self_attn.o_proj for layer in model.model.layers]
    for layer in layers:
        layer.register_forward_hook(
            lambda module, _, found: torch.nn.functional.dropout(found, 0.5, module.training)
        )
    requests = [request([5, 6, 7], n) for n in range(3)]
    wanted = generate(model.eval(), requests, frozenset())
    assert generate(model.train(), requests, frozenset()) == wanted
    assert model.training


def test_a_small_top_p_leaves_only_the_likeliest_token(tiny_policy):
    likeliest = sampled(tiny_policy, Sampling(1e-4, 24))
    assert sampled(tiny_policy, Sampling(1.0, 24, top_p=1e-6)) == likeliest
    assert sampled(tiny_policy, Sampling(1.0, 24, top_p=1.0)) != likeliest


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
def test_penalties_keep_a_model_from_saying_the_same_again(tiny_policy, penalty):
    drawn = sampled(tiny_policy, Sampling(1e-4, 24, **{penalty: 1e6}))
    assert len(set(drawn)) == len(drawn) == 24


def sampled(policy, sampling):
    sample_request = SampleRequest(
        SampleKey(RolloutKey(0, 0, "c", 0), 0), array("i", [5, 6, 7]), sampling
    )
    (sample,) = generate(policy.model, [sample_request], frozenset())
    return list(sample.ids)
