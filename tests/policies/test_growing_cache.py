from __future__ import annotations

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, Qwen3Config
from transformers.cache_utils import DynamicLayer

from sparring.policies.growing_cache import GrowingLayer, bytes_per_token, growing_cache
from sparring.policies.pretrained import load_weights

adding = st.tuples(st.just("add"), st.integers(1, 90))
selecting = st.tuples(st.just("select"), st.lists(st.integers(0, 1), min_size=1, max_size=3))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(adding, selecting), min_size=1, max_size=12))
def test_it_holds_what_the_cache_of_transformers_holds(steps):
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
