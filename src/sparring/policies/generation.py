"""Sampling with in-process weights: one batch, shared prompts computed once.

By temperature only. The log-probability kept is that of the temperature-scaled softmax,
which is what the trainer computes again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.policies.grouped_attention import grouped_attention
from sparring.policies.growing_cache import growing_cache
from sparring.policies.prefixes import common_prefix, has_sliding_window


@dataclass(slots=True)
class _Row:
    """One request while it is being decoded."""

    request: SampleRequest
    uniforms: torch.Tensor
    ids: array[int]
    logprobs: array[float]
    finish: Finish | None = None


@torch.inference_mode()
def generate(
    model: Any,
    requests: Sequence[SampleRequest],
    stop_ids: frozenset[int],
    on_tokens: Callable[[int], None] = lambda _: None,
) -> list[Sample]:
    """One sample per request, in order; `on_tokens` hears how many tokens each step drew."""
    rows = [_row(request) for request in requests]
    with _without_dropout(model), grouped_attention(model):
        _decode(_Decoder(model, rows), stop_ids, on_tokens)
    return [Sample(row.ids, row.logprobs, row.finish or Finish.LENGTH) for row in rows]


def _decode(decoder: _Decoder, stop_ids: frozenset[int], on_tokens: Callable[[int], None]) -> None:
    while True:
        drawn = decoder.draw()
        on_tokens(len(drawn))
        for row, token, logprob in drawn:
            row.ids.append(token)
            row.logprobs.append(logprob)
            if token in stop_ids:
                row.finish = Finish.STOP
            elif len(row.ids) >= row.request.sampling.max_tokens:
                row.finish = Finish.LENGTH
        if all(row.finish for row in decoder.rows):
            return
        decoder.advance()


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """A model that was just trained is in training mode: it would forget at random."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def _row(request: SampleRequest) -> _Row:
    generator = torch.Generator().manual_seed(request.key.seed())
    uniforms = torch.rand(request.sampling.max_tokens, generator=generator, dtype=torch.float64)
    return _Row(request, uniforms, array("i"), array("f"))


class _Decoder:
    """The batch: key/value cache, attention mask and last logits of the rows in it.

    Finished rows stay until they are half of the batch: taking a row out copies the cache,
    and halving keeps the sum of all copies below two batches.
    """

    def __init__(self, model: Any, rows: list[_Row]) -> None:
        self._model = model
        self._device = model.device
        self.rows = rows
        self._mask: torch.Tensor
        self._logits: torch.Tensor
        self._next: torch.Tensor
        self._cache = growing_cache(model.config)
        prompts = list(dict.fromkeys(row.request.prompt.tobytes() for row in rows))
        place = {prompt: number for number, prompt in enumerate(prompts)}
        self._prefill([_tokens(prompt) for prompt in prompts])
        self._select([place[row.request.prompt.tobytes()] for row in rows])

    def draw(self) -> list[tuple[_Row, int, float]]:
        """The next token of every live row, by inverse transform of its own random number."""
        temperatures = torch.tensor(
            [max(row.request.sampling.temperature, 1e-6) for row in self.rows], dtype=torch.float32
        )
        scores = self._penalised(self._logits.float().cpu()) / temperatures[:, None]
        logprobs = torch.log_softmax(scores, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        drawn = torch.stack(
            [row.uniforms[min(len(row.ids), len(row.uniforms) - 1)] for row in self.rows]
        )
        places = (drawn * cumulative[:, -1]).unsqueeze(1)
        tokens = torch.searchsorted(cumulative, places, right=True).squeeze(1)
        tokens = tokens.clamp_(max=cumulative.shape[1] - 1)
        self._next = tokens
        chosen = logprobs.gather(1, tokens[:, None]).squeeze(1)
        drawn_tokens, drawn_logprobs = tokens.tolist(), chosen.tolist()
        return [
            (row, drawn_tokens[number], drawn_logprobs[number])
            for number, row in enumerate(self.rows)
            if row.finish is None
        ]

    def _penalised(self, scores: torch.Tensor) -> torch.Tensor:
        """Tokens that were there already, made less likely where a request asks for it."""
        for number, row in enumerate(self.rows):
            penalty = row.request.sampling.repetition_penalty
            if penalty != 1.0:
                seen = torch.tensor(sorted({*row.request.prompt, *row.ids}))
                found = scores[number, seen]
                scores[number, seen] = torch.where(found > 0, found / penalty, found * penalty)
        return scores

    def advance(self) -> None:
        """Forward the tokens just drawn."""
        live = [number for number, row in enumerate(self.rows) if row.finish is None]
        if len(live) * 2 <= len(self.rows):
            self._next = self._next[live]
            self._select(live)
            self.rows = [self.rows[number] for number in live]
        ones = torch.ones(len(self.rows), 1, dtype=torch.long, device=self._device)
        positions = self._mask.sum(dim=1, keepdim=True)
        self._mask = torch.cat([self._mask, ones], dim=1)
        self._forward(self._next[:, None].to(self._device), positions)

    def _prefill(self, prompts: list[list[int]]) -> None:
        """All different prompts at once, what they have in common only once."""
        alone = len(prompts) == 1 or has_sliding_window(self._model.config)
        shared = 0 if alone else common_prefix(prompts)
        if shared:
            head = torch.tensor([prompts[0][:shared]], device=self._device)
            self._mask = torch.ones_like(head)
            self._forward(head, torch.arange(shared, device=self._device)[None])
            self._cache.batch_repeat_interleave(len(prompts))
        rest = [prompt[shared:] for prompt in prompts]
        width = max(map(len, rest))
        ids = torch.zeros(len(rest), width, dtype=torch.long)
        mask = torch.zeros(len(rest), width, dtype=torch.long)
        for number, tokens in enumerate(rest):
            ids[number, width - len(tokens) :] = torch.tensor(tokens)
            mask[number, width - len(tokens) :] = 1
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0) + shared
        head_mask = torch.ones(len(rest), shared, dtype=torch.long)
        self._mask = torch.cat([head_mask, mask], dim=1).to(self._device)
        self._forward(ids.to(self._device), positions.to(self._device))

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> None:
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits = output.logits[:, -1]

    def _select(self, rows: list[int]) -> None:
        if rows == list(range(self._mask.shape[0])):
            return
        index = torch.tensor(rows, device=self._device)
        self._cache.batch_select_indices(index)
        self._mask = self._mask[index]
        self._logits = self._logits[index]


def _tokens(prompt: bytes) -> list[int]:
    ids: array[int] = array("i")
    ids.frombytes(prompt)
    return ids.tolist()
