"""Checks that an artefact gives the log-probabilities of its checkpoint.

Recorded rollouts are replayed. At up to 256 sampled tokens, the artefact's distribution is compared
with the checkpoint's. A server returns only its most probable tokens; the others are merged into
one token, so the KL divergence is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import Gap
from sparring.shipping.llama_cpp import LlamaServer

MAX_POSITIONS = 256
_TOP = 100
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a rollout: the ids before it, and the id that was sampled there."""

    before: list[int]
    sampled: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest accepted gap of a precision. None: the gap is only reported."""

    mean: float | None
    largest: float | None


BOUNDS = {
    "float32": Bound(1e-4, 1e-3),
    "bfloat16": Bound(5e-2, None),
    "float16": Bound(5e-3, None),
    "f32": Bound(5e-3, 1e-1),  # llama.cpp keeps keys and values in F16
    "f16": Bound(5e-3, 1e-1),
    "q8_0": Bound(5e-2, None),
}
INFORMATION = Bound(None, None)


def positions_of(rollouts: Sequence[Rollout], limit: int = MAX_POSITIONS) -> list[Position]:
    """Return at most `limit` positions: the first sampled tokens of each row, equally many."""
    rows = [row for rollout in rollouts for row in rollout.rows if row.sampled]
    if not rows:
        return []
    share = max(1, limit // len(rows))
    places: list[Position] = []
    for row in rows:
        ids, mask = row.ids.tolist(), row.mask()
        sampled = [at for at, is_sampled in enumerate(mask) if is_sampled and at]
        places += [Position(ids[:at], ids[at]) for at in sampled[:share]]
    return places[:limit]


def log_probabilities(model: Any, positions: Sequence[Position]) -> Any:
    """Return the log-probabilities of all tokens at each position, one row per position."""
    import torch

    rows = []
    with torch.inference_mode():
        for longest, group in _by_row(positions):
            ids = torch.tensor([[*longest.before, longest.sampled]], device=model.device)
            logits = model(input_ids=ids).logits[0].float().cpu()
            rows += [torch.log_softmax(logits[len(each.before) - 1], -1) for each in group]
    return torch.stack(rows)


def _by_row(positions: Sequence[Position]) -> Iterator[tuple[Position, list[Position]]]:
    """Yield the longest position of each row, with all its positions: a forward pass over the
    longest covers all."""
    group: list[Position] = []
    for position in positions:
        previous = group[-1] if group else None
        if previous is not None and position.before[: len(previous.before)] != previous.before:
            yield group[-1], group
            group = []
        group.append(position)
    if group:
        yield group[-1], group


def gap_between(ours: Any, theirs: Any, positions: Sequence[Position]) -> Gap:
    """Return the gap between full distributions at the same positions."""
    sampled = [position.sampled for position in positions]
    index = range(len(sampled))
    differences = (theirs[index, sampled] - ours[index, sampled]).abs()
    divergence = (ours.exp() * (ours - theirs)).sum(-1).clamp(min=0)
    best = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return Gap(
        len(sampled),
        float(differences.mean()),
        float(differences.max()),
        float(divergence.mean()),
        best,
    )


def gap_to_server(ours: Any, server: LlamaServer, positions: Sequence[Position]) -> Gap:
    """Return the gap between full distributions and a server's most probable tokens."""
    differences, divergences, best, unseen = [], [], 0, 0
    for number, position in enumerate(positions):
        row, found = ours[number], server.next_logprobs(position.before, position.sampled, _TOP)
        if not found:
            raise FaultyArtefact("llama.cpp returns no log-probabilities; use a newer version")
        divergences.append(_bucketed(row, found))
        best += int(row.argmax()) == max(found, key=lambda token: found[token])
        if position.sampled in found:
            differences.append(abs(found[position.sampled] - float(row[position.sampled])))
        else:
            unseen += 1
    count = max(1, len(differences))
    return Gap(
        len(positions),
        sum(differences) / count,
        max(differences, default=math.inf),
        sum(divergences) / max(1, len(divergences)),
        best,
        unseen,
    )


def _bucketed(row: Any, found: dict[int, float]) -> float:
    """Return the KL divergence over a server's tokens, with all others merged into one."""
    total, ours_seen, theirs_seen = 0.0, 0.0, 0.0
    for token, theirs in found.items():
        ours = float(row[token])
        total += math.exp(ours) * (ours - theirs)
        ours_seen += math.exp(ours)
        theirs_seen += math.exp(theirs)
    ours_rest, theirs_rest = max(1 - ours_seen, _TINY), max(1 - theirs_seen, _TINY)
    if ours_rest > 1e-6:  # rounding errors dominate a smaller rest
        total += ours_rest * math.log(ours_rest / theirs_rest)
    return max(total, 0.0)


def check_gap(gap: Gap, bound: Bound, *, trained_from_base: float) -> str:
    """Raise FaultyArtefact if the gap exceeds its bound. Return a warning if the divergence exceeds
    a third of the divergence between checkpoint and base, else an empty string."""
    shown = f"mean {gap.mean:.2g}, largest {gap.largest:.2g}, KL {gap.kl:.2g}"
    learned = f"training moved the model by KL {trained_from_base:.2g}"
    if bound.mean is not None and gap.mean > bound.mean:
        raise FaultyArtefact(
            f"the log-probabilities differ from the checkpoint's ({shown}; the bound on the mean "
            f"is {bound.mean:g}; {learned}), so the artefact has other weights"
        )
    if bound.largest is not None and gap.largest > bound.largest:
        raise FaultyArtefact(
            f"the log-probabilities differ from the checkpoint's ({shown}; the bound on the "
            f"largest is {bound.largest:g}; {learned}), so the artefact has other weights"
        )
    if gap.kl > trained_from_base / 3 > 0:
        return (
            f"{learned}, and conversion by KL {gap.kl:.2g}: the conversion may have undone part of "
            "the training"
        )
    return ""
