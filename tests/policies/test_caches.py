from __future__ import annotations

import asyncio
import weakref
from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, Qwen3Config
from transformers.cache_utils import DynamicLayer

from sparring.contracts.policies import SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.caches import (
    WORTH_SHARING,
    GrowingLayer,
    StoredTurn,
    TurnCache,
    TurnCopy,
    _shared_length,
    bytes_per_token,
    common_prefix,
    growing_cache,
    has_sliding_window,
    sharing_groups,
)
from sparring.policies.generation import generate
from sparring.policies.pretrained import load_weights

adding = st.tuples(st.just("add"), st.integers(1, 90))
selecting = st.tuples(st.just("select"), st.lists(st.integers(0, 1), min_size=1, max_size=3))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(adding, selecting), min_size=1, max_size=12))
def test_a_growing_cache_holds_what_the_cache_of_transformers_holds(steps):
    plain, growing = DynamicLayer(), GrowingLayer()
    torch.manual_seed(0)
    rows = 2
    for what, how in [("add", 3), *steps]:
        if what == "add":
            new = torch.randn(2, rows, 2, how, 4)
            wanted, found = plain.update(*new), growing.update(*new)
            assert torch.equal(wanted[0], found[0])
            assert torch.equal(wanted[1], found[1])
        else:
            index = torch.tensor([each % rows for each in how])
            plain.batch_select_indices(index)
            growing.batch_select_indices(index)
            rows = len(how)
        assert growing.get_seq_length() == plain.get_seq_length()


def test_a_token_is_added_without_copying_the_rest():
    layer = GrowingLayer()
    layer.update(*torch.randn(2, 1, 2, 100, 4))
    before = layer.keys.data_ptr()
    for _ in range(50):
        layer.update(*torch.randn(2, 1, 2, 1, 4))
    assert layer.keys.data_ptr() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.reorder_cache(torch.tensor([1])),
        lambda layer: layer.batch_select_indices(torch.tensor([1])),
        lambda layer: layer.batch_repeat_interleave(2),
    ],
)
def test_rows_that_were_removed_or_repeated_free_what_they_were_in(change):
    layer = GrowingLayer()
    layer.update(*torch.randn(2, 3, 2, 100, 4))
    buffers = [weakref.ref(layer.keys._base), weakref.ref(layer.values._base)]
    change(layer)
    assert [buffer() for buffer in buffers] == [None, None]


def test_layers_with_a_window_stay_as_they_are():
    kinds = ["full_attention", "sliding_attention"]
    config = Qwen3Config(
        num_hidden_layers=2, layer_types=kinds, sliding_window=8, use_sliding_window=True
    )
    made = growing_cache(config)
    assert type(made.layers[0]) is GrowingLayer
    assert type(made.layers[1]) is type(DynamicCache(config=config).layers[1])


def test_a_token_takes_the_bytes_that_its_cache_holds(tiny_folder):
    model = load_weights(str(tiny_folder)).eval()
    with torch.inference_mode():
        cache = model(input_ids=torch.ones(1, 10, dtype=torch.long), use_cache=True).past_key_values
    held = sum(each.nbytes for layer in cache.layers for each in (layer.keys, layer.values))
    assert bytes_per_token(model) == held / 10


STOPS = frozenset(range(0, 509, 8))  # a random model ends its turns only if many tokens end one


def request(prompt: list[int], index: int, turn: int) -> SampleRequest:
    key = SampleKey(RolloutKey(0, 0, "c", index), turn)
    return SampleRequest(key, array("i", prompt), Sampling(1.0, 24))


def conversations(model: Any, turns: TurnCache | None, rounds: int = 4) -> list[Any]:
    """Six rollouts of several turns, each continued by a result of another length."""
    prompts = [[*range(40, 100), *range(100 + n, 120 + 3 * n)] for n in range(6)]
    drawn = []
    for turn in range(rounds):
        requests = [request(prompt, index, turn) for index, prompt in enumerate(prompts)]
        samples = generate(model, requests, STOPS, turns=turns)
        drawn.append([(list(each.prompt), sample) for each, sample in zip(requests, samples)])  # noqa: B905
        prompts = [
            [*prompt, *sample.ids, *range(200, 205 + 7 * index)]
            for index, (prompt, sample) in enumerate(zip(prompts, samples, strict=True))
        ]
    return [each for turn in drawn for each in turn]


class Counting(torch.nn.Module):
    """A model that counts the tokens that go through it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model
        self.tokens = 0
        self.config, self.device, self.dtype = model.config, model.device, model.dtype

    def forward(self, input_ids: Any, **options: Any) -> Any:
        self.tokens += input_ids.numel()
        return self.inner(input_ids=input_ids, **options)


def test_log_probabilities_are_those_of_a_plain_forward_pass(tiny_policy: Any) -> None:
    model = tiny_policy.model
    for prompt, sample in conversations(model, TurnCache(2**30)):
        with torch.inference_mode():
            whole = torch.tensor([[*prompt, *sample.ids]])
            logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1].float()
        ids = torch.tensor([list(sample.ids)])
        wanted = torch.log_softmax(logits, -1).gather(1, ids.T).squeeze(1)
        assert torch.allclose(torch.tensor(list(sample.logprobs)), wanted, atol=1e-5)


def test_tokens_are_those_that_are_drawn_without_a_cache(tiny_policy: Any) -> None:
    kept = conversations(tiny_policy.model, TurnCache(2**30))
    again = conversations(tiny_policy.model, None)
    assert [list(sample.ids) for _, sample in kept] == [list(sample.ids) for _, sample in again]


def test_only_new_tokens_go_through_the_model(tiny_policy: Any) -> None:
    kept, again = Counting(tiny_policy.model), Counting(tiny_policy.model)
    conversations(kept, TurnCache(2**30))
    conversations(again, None)
    assert kept.tokens < again.tokens / 2


def test_a_turn_that_is_continued_is_not_in_memory_twice(
    tiny_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[StoredTurn] = []
    take, held = TurnCache.take, list[int]()

    def note(turns: TurnCache, wanted: SampleRequest) -> Any:
        found = take(turns, wanted)
        taken.extend([found[0]] if found else [])
        return found

    class Watching(Counting):
        def forward(self, input_ids: Any, **options: Any) -> Any:
            held.extend(turn.size for turn in taken)
            return super().forward(input_ids, **options)

    monkeypatch.setattr(TurnCache, "take", note)
    conversations(Watching(tiny_policy.model), TurnCache(2**30))
    assert len(taken) == 18
    assert not any(held)


@pytest.mark.parametrize("ended", [4, 6], ids=["some rows", "all rows"])
def test_a_batch_whose_rows_end_is_not_in_memory_twice(
    tiny_policy: Any, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    """Each layer of the batch is freed when its rows are stored."""
    plan, add = TurnCache.plan, TurnCopy.add
    layers: list[Any] = []
    stored: list[StoredTurn] = []
    held: list[int] = []

    def size(parts: list[Any]) -> int:
        tensors = [tensor for each in parts for tensor in (each.keys, each.values)]
        tensors += [tensor for turn in stored for tensor in (*turn.keys, *turn.values)]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    def note_plan(turns: TurnCache, rows: Any, cache: Any, mask: Any) -> list[TurnCopy]:
        if not layers:
            layers.extend(cache.layers)
            held.append(size(layers))
        copies = plan(turns, rows, cache, mask)
        stored.extend(each.turn for each in copies)
        return copies

    def note_add(copy: TurnCopy, layer: Any) -> None:
        add(copy, layer)
        held.append(size(layers))

    monkeypatch.setattr(TurnCache, "plan", note_plan)
    monkeypatch.setattr(TurnCopy, "add", note_add)
    prompts = [[*range(40, 100), *range(100 + n, 120 + 3 * n)] for n in range(6)]
    requests = [request(prompt, index, 0) for index, prompt in enumerate(prompts)]
    requests = [
        replace(each, sampling=Sampling(1.0, 1 if index < ended else 2))
        for index, each in enumerate(requests)
    ]
    generate(tiny_policy.model, requests, frozenset(), turns=TurnCache(2**30))
    before, *while_storing = held[: 1 + ended * len(layers)]
    assert len(stored) == 6
    assert max(while_storing) <= before * (1 + 1 / len(layers))


def test_a_copy_that_fails_leaves_no_turn(
    tiny_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(copy: TurnCopy, layer: Any) -> None:
        raise MemoryError

    turns = TurnCache(2**30)
    wanted = request([*range(40, 100)], 0, 0)
    with monkeypatch.context() as broken:
        broken.setattr(TurnCopy, "add", fail)
        with pytest.raises(MemoryError):
            generate(tiny_policy.model, [wanted], STOPS, turns=turns)
    assert turns.take(wanted) is None
    generate(tiny_policy.model, [wanted], STOPS, turns=turns)
    assert turns.take(wanted) is not None


def test_without_memory_turns_are_computed_again(tiny_policy: Any) -> None:
    without, again = Counting(tiny_policy.model), Counting(tiny_policy.model)
    conversations(without, TurnCache(0))
    conversations(again, None)
    assert without.tokens == again.tokens


def test_a_history_that_was_changed_is_continued_from_where_it_is_the_same(
    tiny_policy: Any,
) -> None:
    turns, prompt = TurnCache(2**30), list(range(40, 120))
    (first,) = generate(tiny_policy.model, [request(prompt, 0, 0)], STOPS, turns=turns)
    changed = [*prompt[:70], *range(300, 330)]
    (sample,) = generate(tiny_policy.model, [request(changed, 0, 1)], STOPS, turns=turns)
    (plain,) = generate(tiny_policy.model, [request(changed, 0, 1)], STOPS)
    assert first.ids
    assert sample.ids == plain.ids


def test_rollouts_that_ended_are_dropped() -> None:
    turns = TurnCache(1000)
    stored = StoredTurn(array("i", range(50)), [torch.zeros(1, 50, 1)], [torch.zeros(1, 50, 1)])
    for index in range(3):
        turns._turns[RolloutKey(0, 0, "c", index)] = [stored]
        turns._size += stored.size
    turns.keep_only({RolloutKey(0, 0, "c", 1)})
    assert turns._size == stored.size
    assert turns.take(request([*range(50), 7], 0, 1)) is None
    assert turns.take(request([*range(50), 7], 1, 1)) == (stored, 50)
    assert turns._size == 0


def test_nothing_is_left_when_all_rollouts_have_ended_or_weights_change(tiny_policy: Any) -> None:
    prompt = list(range(40, 120))

    def stored() -> int:
        return len(tiny_policy._turns._turns)

    async def play() -> None:
        tiny_policy.codec = type("Codec", (), {"stop_ids": frozenset(range(509))})()
        tiny_policy.join()
        await tiny_policy.sample(request(prompt, 0, 0))
        assert stored() == 1
        tiny_policy.version = 1
        await tiny_policy.sample(request([5, 6], 1, 0))
        assert RolloutKey(0, 0, "c", 0) not in tiny_policy._turns._turns
        tiny_policy.leave()
        assert stored() == 0

    asyncio.run(play())


tokens = st.lists(st.integers(0, 3), max_size=12).map(lambda ids: array("i", ids))


@given(tokens, tokens.filter(len))
def test_the_shared_beginning_leaves_a_token_to_compute(
    stored: array[int], prompt: array[int]
) -> None:
    shared = _shared_length(stored, prompt)
    assert stored[:shared] == prompt[:shared]
    assert shared < len(prompt)
    is_longest = shared in (len(stored), len(prompt) - 1)
    assert is_longest or stored[shared] != prompt[shared]


@pytest.mark.parametrize("layers", [["sliding"], []])
def test_only_caches_that_keep_every_token_are_stored(layers: list[str]) -> None:
    from sparring.policies.caches import can_store

    cache = type("Cache", (), {"layers": [object() for _ in layers]})()
    assert can_store(cache) is not bool(layers)


few_tokens = st.lists(st.integers(0, 2), max_size=30)


@given(few_tokens, st.lists(few_tokens.filter(bool), min_size=1, max_size=5))
def test_the_prefix_is_common_and_the_longest_that_leaves_each_a_token(
    shared: list[int], rests: list[list[int]]
) -> None:
    prompts = [[*shared, *rest] for rest in rests]
    length = common_prefix(prompts)
    assert length == 0 or length >= WORTH_SHARING
    assert len({tuple(prompt[:length]) for prompt in prompts}) == 1
    assert all(length < len(prompt) for prompt in prompts)
    if len(shared) >= WORTH_SHARING:
        assert length >= len(shared)
    if length:
        is_at_limit = length + 1 == min(map(len, prompts))
        assert is_at_limit or len({prompt[length] for prompt in prompts}) > 1


def test_a_prefix_that_is_too_short_is_not_shared() -> None:
    prefix = list(range(WORTH_SHARING))
    assert common_prefix([[*prefix, 1], [*prefix, 2]]) == WORTH_SHARING
    assert common_prefix([[*prefix[1:], 1], [*prefix[1:], 2]]) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_equal_prompts_keep_their_last_token_for_themselves(count: int) -> None:
    assert common_prefix([list(range(40))] * count) == 39


@pytest.mark.parametrize(
    ("config", "slides"),
    [
        ({}, False),
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096}, True),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"layer_types": [], "sliding_window": 4096}, True),
    ],
)
def test_the_layers_decide_about_a_window_where_they_are_named(
    config: dict[str, Any], slides: bool
) -> None:
    assert has_sliding_window(SimpleNamespace(**config)) is slides


@given(st.lists(few_tokens.filter(bool), min_size=1, max_size=12))
def test_every_prompt_is_in_one_group(prompts: list[list[int]]) -> None:
    groups = sharing_groups(prompts)
    assert sorted(place for group in groups for place in group) == list(range(len(prompts)))
    assert all(group == sorted(group) for group in groups)


def test_prompts_of_several_agents_are_grouped_by_agent() -> None:
    price, stock = [1, *range(10, 60)], [1, *range(70, 150)]
    prompts = [[*(price, stock)[n % 2], 200 + n, 5] for n in range(8)]
    assert sharing_groups(prompts) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_prompts_that_have_little_in_common_stay_together() -> None:
    assert sharing_groups([[n, *range(50)] for n in range(8)]) == [list(range(8))]
    assert sharing_groups([[1, 2, 3]]) == [[0]]
    assert sharing_groups([[1, 2, 3], [4, 5, 6]]) == [[0, 1]]
