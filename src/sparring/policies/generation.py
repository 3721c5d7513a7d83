"""Samples one batch of requests with in-process weights; shared prompts are computed once.

Training samples by temperature only, and log-probabilities are those of the temperature-scaled
softmax, so that the trainer can recompute them. Penalties and `top_p` are for evaluation and for
running a trained agent.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.machine import release_freed_memory
from sparring.policies.caches import (
    StoredTurn,
    TurnCache,
    TurnCopy,
    can_store,
    common_prefix,
    growing_cache,
    sharing_groups,
)
from sparring.policies.cpu_forward import few_rows, grouped_attention


@dataclass(slots=True)
class _Row:
    """One request while it is being decoded."""

    request: SampleRequest
    uniforms: torch.Tensor
    ids: array[int]
    logprobs: array[float]
    finish: Finish | None = None

    def add(self, token: int, logprob: float, stop_ids: frozenset[int]) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in stop_ids:
            self.finish = Finish.STOP
        elif len(self.ids) >= self.request.sampling.max_tokens:
            self.finish = Finish.LENGTH


@torch.inference_mode()
def generate(
    model: Any,
    requests: Sequence[SampleRequest],
    stop_ids: frozenset[int],
    on_tokens: Callable[[int], None] = lambda _: None,
    turns: TurnCache | None = None,
) -> list[Sample]:
    """Return one sample per request, in order; call `on_tokens` with each step's token count.

    With `turns`, requests that continue a stored turn form a separate batch, for which only new
    tokens are computed. Every finished turn is stored.
    """
    rows = [_new_row(request) for request in requests]
    with _without_dropout(model), grouped_attention(model), few_rows(model):
        for batch in _batches(model, rows, turns):
            while True:
                drawn = batch.draw()
                on_tokens(len(drawn))
                for row, token, logprob in drawn:
                    row.add(token, logprob, stop_ids)
                if all(row.finish for row in batch.rows):
                    batch.finish()
                    break
                batch.advance()
    return [Sample(row.ids, row.logprobs, row.finish or Finish.LENGTH) for row in rows]


def _batches(model: Any, rows: list[_Row], turns: TurnCache | None) -> Iterator[_SampleBatch]:
    """Yield the batch that continues stored turns first, because the turns taken from `turns` are
    in memory until then."""
    found = [turns.take(row.request) if turns else None for row in rows]
    continued = [(row, *turn) for row, turn in zip(rows, found, strict=True) if turn]
    new = [row for row, turn in zip(rows, found, strict=True) if not turn]
    if continued:
        yield _continued_batch(model, continued, turns)
    if new:
        yield _new_batch(model, new, turns)


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Switch to evaluation mode for the duration of the block; in training mode, dropout is
    active."""
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


class _SampleBatch:
    """Key/value cache, attention mask and last logits of one batch of rows.

    Finished rows are removed once they are at least half of the batch. Each removal copies the
    cache of the remaining rows. Since the batch at least halves each time, all removals together
    copy fewer rows than the batch had at first.
    """

    def __init__(self, model: Any, rows: list[_Row], turns: TurnCache | None) -> None:
        self.rows = rows
        self.device = model.device
        self.cache = growing_cache(model.config)
        self._model = model
        self._turns = turns
        self._mask: torch.Tensor
        self._logits: torch.Tensor
        self._next_tokens: torch.Tensor

    def draw(self) -> list[tuple[_Row, int, float]]:
        """Draw the next token of each unfinished row; return rows, tokens and log-probabilities.

        Tokens are drawn by inverse transform sampling. The random numbers of a row depend only on
        its own seed, not on the other rows.
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
        cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
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
        """The device that draws tokens: the model's, so that the scores of the whole vocabulary
        need no transfer; the CPU for MPS, which has no double precision."""
        return torch.device("cpu") if self.device.type == "mps" else self.device

    def _penalise(self, scores: torch.Tensor) -> torch.Tensor:
        """Apply each request's repetition, frequency and presence penalties, in place."""
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
        """Set the scores outside the nucleus to minus infinity, in place. The nucleus is the
        smallest set of most likely tokens whose probabilities sum to at least `top_p`."""
        for index, row in enumerate(self.rows):
            if (top_p := row.request.sampling.top_p) < 1.0:
                probabilities, order = scores[index].softmax(-1).sort(descending=True)
                is_excluded = probabilities.cumsum(-1) - probabilities >= top_p
                is_excluded[0] = False
                scores[index, order[is_excluded]] = float("-inf")
        return scores

    def advance(self) -> None:
        """Remove finished rows if they are at least half of the batch; run the model on the drawn
        tokens."""
        unfinished = [index for index, row in enumerate(self.rows) if row.finish is None]
        if len(unfinished) * 2 <= len(self.rows):
            self._next_tokens = self._next_tokens[unfinished]
            self._keep(unfinished)
        ones = torch.ones(len(self.rows), 1, dtype=torch.long, device=self.device)
        positions = self._mask.sum(dim=1, keepdim=True)
        self._mask = torch.cat([self._mask, ones], dim=1)
        self._forward(self._next_tokens[:, None].to(self.device), positions)

    def prefill_in_groups(self, prompts: list[list[int]]) -> None:
        """Prefill prompts in groups with common prefixes, then join the groups into one batch."""
        groups = sharing_groups(prompts) if can_store(self.cache) else [[*range(len(prompts))]]
        if len(groups) == 1:
            self._prefill(prompts)
            return
        caches, masks, logits = [], [], []
        for group in groups:
            self.cache = growing_cache(self._model.config)
            self._prefill([prompts[position] for position in group])
            caches.append(self.cache)
            masks.append(self._mask)
            logits.append(self._logits)
        order = torch.tensor([place for group in groups for place in group], device=self.device)
        rows = order.argsort()  # from group order back to prompt order
        width = max(mask.shape[1] for mask in masks)
        self._mask = torch.cat([_left_padded(mask, width, 1) for mask in masks])[rows]
        self._logits = torch.cat(logits)[rows]
        self.cache = growing_cache(self._model.config)
        for number in range(len(self.cache.layers)):
            layers = [cache.layers[number] for cache in caches]
            keys = torch.cat([_left_padded(layer.keys, width, 2) for layer in layers])[rows]
            values = torch.cat([_left_padded(layer.values, width, 2) for layer in layers])[rows]
            self.cache.update(keys, values, number)
            for cache in caches:
                cache.layers[number] = None  # freed now: at most one layer is in memory twice

    def _prefill(self, prompts: list[list[int]]) -> None:
        """Run the model once on the common prefix of the prompts, then on the rest of each. Sliding
        windows and recurrent states would count the padding between the two, so they share none."""
        can_share = len(prompts) > 1 and can_store(self.cache)
        shared = common_prefix(prompts) if can_share else 0
        if shared:
            prefix = torch.tensor([prompts[0][:shared]], device=self.device)
            self._mask = torch.ones_like(prefix)
            self._forward(prefix, torch.arange(shared, device=self.device)[None])
            self.cache.batch_repeat_interleave(len(prompts))
        suffixes = [prompt[shared:] for prompt in prompts]
        self.append(suffixes, torch.ones(len(suffixes), shared, dtype=torch.long))

    def append(self, suffixes: list[list[int]], before: torch.Tensor) -> None:
        """Run the model on suffixes of any length. `before` is the attention mask of the cached
        tokens."""
        width = max(map(len, suffixes))
        ids = torch.zeros(len(suffixes), width, dtype=torch.long)
        mask = torch.zeros(len(suffixes), width, dtype=torch.long)
        for index, tokens in enumerate(suffixes):
            ids[index, width - len(tokens) :] = torch.tensor(tokens)
            mask[index, width - len(tokens) :] = 1
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0) + before.sum(dim=1, keepdim=True)
        self._mask = torch.cat([before, mask], dim=1).to(self.device)
        self._forward(ids.to(self.device), positions.to(self.device))

    def finish(self) -> None:
        """Remove all rows, and store their key/value caches for later turns."""
        if self._turns is not None and can_store(self.cache):
            self._keep([])

    def _keep(self, indices: list[int]) -> None:
        """Remove all other rows, and store their key/value caches for later turns."""
        removed = sorted({*range(len(self.rows))}.difference(indices))
        if self._turns is None or not can_store(self.cache):
            self.select_rows(indices)
        else:
            ended = [(each, self.rows[each].request, self.rows[each].ids) for each in removed]
            copies = self._turns.plan(ended, self.cache, self._mask)
            self.select_rows(indices, copies)
            self._turns.store(copies)
        self.rows = [self.rows[index] for index in indices]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> None:
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits = output.logits[:, -1]

    def select_rows(self, indices: list[int], copies: Sequence[TurnCopy] = ()) -> None:
        """Select rows, which may repeat, after `copies` of others were made. A layer's rows of
        before are freed at once, so that at most one layer is in memory twice."""
        selected = torch.tensor(indices, dtype=torch.long, device=self.device)
        for layer in self.cache.layers:
            for each in copies:
                each.add(layer)
            layer.reorder_cache(selected)  # unlike batch_select_indices, for layers of any kind
        self._mask = self._mask[selected]
        self._logits = self._logits[selected]


def _new_batch(model: Any, rows: list[_Row], turns: TurnCache | None) -> _SampleBatch:
    """Return a batch that has read its prompts, each prompt once."""
    batch = _SampleBatch(model, rows, turns)
    prompts = list(dict.fromkeys(row.request.prompt.tobytes() for row in rows))
    prompt_index = {prompt: index for index, prompt in enumerate(prompts)}
    batch.prefill_in_groups([array("i", prompt).tolist() for prompt in prompts])
    if len(prompts) < len(rows):
        batch.select_rows([prompt_index[row.request.prompt.tobytes()] for row in rows])
    return batch


def _continued_batch(
    model: Any, continued: Sequence[tuple[_Row, StoredTurn, int]], turns: TurnCache | None
) -> _SampleBatch:
    """Return a batch whose rows start from the stored key/value caches of earlier turns, which it
    empties."""
    batch = _SampleBatch(model, [row for row, _, _ in continued], turns)
    longest = max(length for _, _, length in continued)
    before = torch.zeros(len(continued), longest, dtype=torch.long)
    for index, (_, _, length) in enumerate(continued):
        before[index, longest - length :] = 1
    for layer in range(len(batch.cache.layers)):
        # A layer of all turns is freed once it is copied. Their tensors are small, and glibc
        # would keep them for others.
        keys = [(turn.keys.pop(0), length) for _, turn, length in continued]
        values = [(turn.values.pop(0), length) for _, turn, length in continued]
        batch.cache.update(_right_aligned(keys, longest), _right_aligned(values, longest), layer)
        del keys, values
        if batch.device.type == "cpu":
            release_freed_memory()
    batch.append([row.request.prompt[length:].tolist() for row, _, length in continued], before)
    return batch


def _left_padded(batch: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    """Pad a batch with zeros on the left, to `width` tokens along `dim`."""
    missing = width - batch.shape[dim]
    if not missing:
        return batch
    shape = [*batch.shape[:dim], missing, *batch.shape[dim + 1 :]]
    return torch.cat([batch.new_zeros(shape), batch], dim=dim)


def _right_aligned(parts: list[tuple[torch.Tensor, int]], longest: int) -> torch.Tensor:
    """Return one batch of the first `length` tokens of each part, padded with zeros on the left."""
    first, _ = parts[0]
    batch = first.new_zeros(len(parts), first.shape[0], longest, first.shape[2])
    for index, (part, length) in enumerate(parts):
        batch[index, :, longest - length :] = part[:, :length]
    return batch
