"""Builds a tiny Qwen3 model with random weights, and a tokenizer for it.

The output of the model is meaningless; use it where only shapes and tokens matter. It builds within
two seconds, and is the same on every machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.models.templates import own_template

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_VOCABULARY = 600


def build_tiny(folder: Path) -> Path:
    """Write model and tokenizer to `folder`, and return `folder`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer()
    tokenizer.chat_template = own_template("qwen3")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_tokenizer(special: tuple[str, ...] = CHATML) -> Any:
    """Train a byte-level BPE tokenizer with these special tokens. `TAGS` become added tokens that
    are not special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>" if "<|begin_of_text|>" in special else None,
        pad_token=special[1] if special is LLAMA else "<|endoftext|>",
        eos_token="<|eot_id|>" if special is LLAMA else "<|im_end|>",
        clean_up_tokenization_spaces=False,
    )


_CORPUS = [
    "You are a helpful assistant. You may call one or more functions to assist with the query.",
    'Reply with a json object: {"name": "add", "arguments": {"a": 12, "b": 34}}',
    "What is the sum of these two numbers? The answer is 46. I do not know the answer.",
    "system user assistant tool function description parameters properties type integer string",
    "required object items array number boolean title additionalProperties false true null",
    "search read write list files find the document that says when the library opens",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 20 25 30 40 50 60 70 80 90 99 100",
]
