"""Samples one batch of requests with in-process weights; shared prompts are computed once.

Training samples by temperature only: the returned log-probability is that of the
temperature-scaled softmax, which the trainer recomputes. Penalties and `top_p` are for
evaluation and for serving a trained model.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.policies.grouped_attention import grouped_attention
from sparring.policies.growing_cache import growing_cache
from sparring.policies.prefixes import common_prefix, has_sliding_window, sharing_groups
from sparring.policies.turn_cache import StoredTurn, TurnCache, can_store


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
    turns: TurnCache | None = None,
) -> list[Sample]:
    """Return one sample per request, in order; calls `on_tokens` with each step's token count.

    With `turns`, requests that continue a stored turn compute only what is new, in a batch of
    their own, and every turn that ends is stored.
    """
    rows = [_new_row(request) for request in requests]
    found = [turns.take(row.request) if turns else None for row in rows]
    continued = [(row, *turn) for row, turn in zip(rows, found, strict=True) if turn]
    new = [row for row, turn in zip(rows, found, strict=True) if not turn]
    with _without_dropout(model), grouped_attention(model):
        if new:
            _decode(_Decoder(model, new, turns), stop_ids, on_tokens)
        if continued:
            _decode(_ContinuingDecoder(model, continued, turns), stop_ids, on_tokens)
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
            decoder.store(range(len(decoder.rows)))
            return
        decoder.advance()


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Switch to evaluation mode: a model that is being trained has dropout enabled."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def _new_row(request: SampleRequest) -> _Row:
    generator = torch.Generator().manual_seed(request.key.seed())
    uniforms = torch.rand(request.sampling.max_tokens, generator=generator, dtype=torch.float64)
    return _Row(request, uniforms, array("i"), array("f"))


class _Decoder:
    """The batch: key/value cache, attention mask and last logits of its rows.

    Finished rows are removed once they are half of the batch. Each removal copies the cache of the
    other rows. Since the batch at least halves, all removals copy fewer rows than it began with.
    """

    def __init__(self, model: Any, rows: list[_Row], turns: TurnCache | None = None) -> None:
        self._begin(model, rows, turns)
        prompts = list(dict.fromkeys(row.request.prompt.tobytes() for row in rows))
        prompt_index = {prompt: index for index, prompt in enumerate(prompts)}
        self._prefill_in_groups([_tokens_of(prompt) for prompt in prompts])
        self._select_rows([prompt_index[row.request.prompt.tobytes()] for row in rows])

    def _begin(self, model: Any, rows: list[_Row], turns: TurnCache | None) -> None:
        self._model = model
        self._device = model.device
        self._turns = turns
        self.rows = rows
        self._mask: torch.Tensor
        self._logits: torch.Tensor
        self._next_tokens: torch.Tensor
        self._cache = growing_cache(model.config)

    def draw(self) -> list[tuple[_Row, int, float]]:
        """Draw the next token of each unfinished row; return rows, tokens and log-probabilities.

        A token is the inverse transform of a random number that the row's own seed determines.
        """
        device = self._sampling_device
        temperatures = torch.tensor(
            [max(row.request.sampling.temperature, 1e-6) for row in self.rows],
            dtype=torch.float32,
            device=device,
        )
        scores = self._penalise(self._logits.float().to(device)) / temperatures[:, None]
        scores = self._apply_top_p(scores)
        logprobs = torch.log_softmax(scores, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        uniforms = torch.stack(
            [row.uniforms[min(len(row.ids), len(row.uniforms) - 1)] for row in self.rows]
        ).to(device)
        thresholds = (uniforms * cumulative[:, -1]).unsqueeze(1)
        tokens = torch.searchsorted(cumulative, thresholds, right=True).squeeze(1)
        tokens = tokens.clamp_(max=cumulative.shape[1] - 1)
        self._next_tokens = tokens
        chosen = logprobs.gather(1, tokens[:, None]).squeeze(1)
        token_list, logprob_list = tokens.tolist(), chosen.tolist()
        return [
            (row, token_list[index], logprob_list[index])
            for index, row in enumerate(self.rows)
            if row.finish is None
        ]

    @property
    def _sampling_device(self) -> torch.device:
        """The device that samples: the model's, so that only tokens are transferred and not the
        scores of the whole vocabulary. MPS has no double precision; the CPU samples for it."""
        return torch.device("cpu") if self._device.type == "mps" else self._device

    def _penalise(self, scores: torch.Tensor) -> torch.Tensor:
        """Apply the requests' repetition, frequency and presence penalties, in place."""
        for index, row in enumerate(self.rows):
            sampling = row.request.sampling
            if (penalty := sampling.repetition_penalty) != 1.0:
                seen = torch.tensor(sorted({*row.request.prompt, *row.ids}), device=scores.device)
                seen_scores = scores[index, seen]
                scores[index, seen] = torch.where(
                    seen_scores > 0, seen_scores / penalty, seen_scores * penalty
                )
            if row.ids and (sampling.frequency_penalty or sampling.presence_penalty):
                sampled = torch.tensor(row.ids, device=scores.device)
                counts = torch.bincount(sampled, minlength=scores.shape[1])
                scores[index] -= sampling.frequency_penalty * counts
                scores[index] -= sampling.presence_penalty * (counts > 0)
        return scores

    def _apply_top_p(self, scores: torch.Tensor) -> torch.Tensor:
        """Keep the fewest most likely tokens whose probabilities sum to `top_p`, and set the scores
        of the others to minus infinity, in place."""
        for index, row in enumerate(self.rows):
            if (top_p := row.request.sampling.top_p) < 1.0:
                probabilities, order = scores[index].softmax(-1).sort(descending=True)
                is_excluded = probabilities.cumsum(-1) - probabilities >= top_p
                is_excluded[0] = False
                scores[index, order[is_excluded]] = float("-inf")
        return scores

    def advance(self) -> None:
        """Remove finished rows if they are half of the batch; run the model on the new tokens."""
        unfinished = [index for index, row in enumerate(self.rows) if row.finish is None]
        if len(unfinished) * 2 <= len(self.rows):
            self.store(index for index, row in enumerate(self.rows) if row.finish)
            self._next_tokens = self._next_tokens[unfinished]
            self._select_rows(unfinished)
            self.rows = [self.rows[index] for index in unfinished]
        ones = torch.ones(len(self.rows), 1, dtype=torch.long, device=self._device)
        positions = self._mask.sum(dim=1, keepdim=True)
        self._mask = torch.cat([self._mask, ones], dim=1)
        self._forward(self._next_tokens[:, None].to(self._device), positions)

    def _prefill_in_groups(self, prompts: list[list[int]]) -> None:
        """Run the model on prompts that begin alike together, and join the groups to one batch."""
        groups = sharing_groups(prompts) if can_store(self._cache) else [[*range(len(prompts))]]
        if len(groups) == 1:
            self._prefill(prompts)
            return
        caches, masks, logits = [], [], []
        for group in groups:
            self._cache = growing_cache(self._model.config)
            self._prefill([prompts[position] for position in group])
            caches.append(self._cache)
            masks.append(self._mask)
            logits.append(self._logits)
        order = torch.tensor([place for group in groups for place in group], device=self._device)
        rows = order.argsort()  # from the order of the groups to that of the prompts
        width = max(mask.shape[1] for mask in masks)
        self._mask = torch.cat([_left_padded(mask, width, 1) for mask in masks])[rows]
        self._logits = torch.cat(logits)[rows]
        self._cache = growing_cache(self._model.config)
        for number in range(len(self._cache.layers)):
            layers = [cache.layers[number] for cache in caches]
            keys = torch.cat([_left_padded(layer.keys, width, 2) for layer in layers])[rows]
            values = torch.cat([_left_padded(layer.values, width, 2) for layer in layers])[rows]
            self._cache.update(keys, values, number)
            for cache in caches:
                cache.layers[number] = None  # freed now: there is one layer twice at any time

    def _prefill(self, prompts: list[list[int]]) -> None:
        """Run the model on the common prefix of the distinct prompts once, then on all the rest."""
        is_unshared = len(prompts) == 1 or has_sliding_window(self._model.config)
        shared = 0 if is_unshared else common_prefix(prompts)
        if shared:
            prefix = torch.tensor([prompts[0][:shared]], device=self._device)
            self._mask = torch.ones_like(prefix)
            self._forward(prefix, torch.arange(shared, device=self._device)[None])
            self._cache.batch_repeat_interleave(len(prompts))
        suffixes = [prompt[shared:] for prompt in prompts]
        self._append(suffixes, torch.ones(len(suffixes), shared, dtype=torch.long))

    def _append(self, suffixes: list[list[int]], before: torch.Tensor) -> None:
        """Run the model on the rest of each prompt, of any length. `before` is the mask of what
        the cache holds."""
        width = max(map(len, suffixes))
        ids = torch.zeros(len(suffixes), width, dtype=torch.long)
        mask = torch.zeros(len(suffixes), width, dtype=torch.long)
        for index, tokens in enumerate(suffixes):
            ids[index, width - len(tokens) :] = torch.tensor(tokens)
            mask[index, width - len(tokens) :] = 1
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0) + before.sum(dim=1, keepdim=True)
        self._mask = torch.cat([before, mask], dim=1).to(self._device)
        self._forward(ids.to(self._device), positions.to(self._device))

    def store(self, indices: Iterable[int]) -> None:
        """Store the turns of these rows, which a later turn may continue."""
        if self._turns is None or not can_store(self._cache):
            return
        for index in indices:
            row = self.rows[index]
            self._turns.store(row.request, row.ids, self._cache, index, self._mask)

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

    def _select_rows(self, indices: list[int]) -> None:
        if indices == list(range(self._mask.shape[0])):
            return
        selected = torch.tensor(indices, device=self._device)
        self._cache.batch_select_indices(selected)
        self._mask = self._mask[selected]
        self._logits = self._logits[selected]


class _ContinuingDecoder(_Decoder):
    """A batch whose rows begin with the cache of their previous turns."""

    def __init__(
        self,
        model: Any,
        continued: Sequence[tuple[_Row, StoredTurn, int]],
        turns: TurnCache | None,
    ) -> None:
        self._begin(model, [row for row, _, _ in continued], turns)
        longest = max(length for _, _, length in continued)
        before = torch.zeros(len(continued), longest, dtype=torch.long)
        for index, (_, _, length) in enumerate(continued):
            before[index, longest - length :] = 1
        for layer in range(len(self._cache.layers)):
            keys, values = (
                _right_aligned([(part[layer], length) for part, length in parts], longest)
                for parts in (
                    [(turn.keys, length) for _, turn, length in continued],
                    [(turn.values, length) for _, turn, length in continued],
                )
            )
            self._cache.update(keys, values, layer)
        self._append([row.request.prompt[length:].tolist() for row, _, length in continued], before)


def _left_padded(batch: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """Return a batch with zeros before its first token, up to `width` tokens along `dim`."""
    missing = width - batch.shape[dim]
    if not missing:
        return batch
    shape = [*batch.shape[:dim], missing, *batch.shape[dim + 1 :]]
    return torch.cat([batch.new_zeros(shape), batch], dim=dim)


def _right_aligned(parts: list[tuple[torch.Tensor, int]], longest: int) -> torch.Tensor:
    """Return one batch of the first tokens of each part, padded on the left."""
    first, _ = parts[0]
    batch = first.new_zeros(len(parts), first.shape[0], longest, first.shape[2])
    for index, (part, length) in enumerate(parts):
        batch[index, :, longest - length :] = part[:, :length]
    return batch


def _tokens_of(prompt: bytes) -> list[int]:
    ids: array[int] = array("i")
    ids.frombytes(prompt)
    return ids.tolist()
