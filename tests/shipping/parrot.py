"""A model that always writes one text: each token leads to the next by its embedding alone.

The text is split at special tokens; what stands between two of them is one token of its own, so
that no token occurs twice. Tests can then see how servers read a given reply.
"""

from __future__ import annotations

import copy
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from sparring.policies.codec import ChatCodec
from sparring.shipping.gguf_file import GgufFacts, write_gguf
from sparring.shipping.template import write_tokenizer

_WIDTH = 128
_SURE = 30.0


def write_parrot(codec: ChatCodec, last: int, text: str, folder: Path) -> Path:
    """Write a GGUF file whose model answers `text` to every prompt that ends with `last`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = copy.deepcopy(codec.tokenizer)
    chain = [last, *_chain(tokenizer, text)]
    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size, hidden_size=_WIDTH, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=8192,
        tie_word_embeddings=False, eos_token_id=codec.end_of_turn,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    places = torch.nn.functional.normalize(torch.randn(size, _WIDTH), dim=-1)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weights.zero_()
        model.model.embed_tokens.weight.copy_(places)
        model.lm_head.weight.zero_()
        for before, after in pairwise(chain):
            model.lm_head.weight[after] = _SURE * places[before]
    model.save_pretrained(folder)
    write_tokenizer(tokenizer, folder, codec.family.template)
    write_gguf(folder, folder / "parrot.gguf", "f32", GgufFacts("parrot"))
    return folder / "parrot.gguf"


def _chain(tokenizer: Any, text: str) -> list[int]:
    special = [str(each) for each in tokenizer.added_tokens_decoder.values() if each.special]
    special = [each for each in special if text.count(each) < 2]
    pattern = "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
    parts = [part for part in re.split(f"({pattern})", text) if part]
    tokenizer.add_tokens([part for part in parts if part not in special])
    chain = [int(tokenizer.convert_tokens_to_ids(part)) for part in parts]
    assert len(set(chain)) == len(chain), f"a token occurs twice in {parts}"
    return chain
