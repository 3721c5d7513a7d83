"""Operation that shows a rollout's tokens: text, kind, log-probability and weight version."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.foreign import ForeignText
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.rollouts import ShowRollout, find_rollout, open_log, readable_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import read_lines
from sparring.run_folder.records import RowRecord

_MAX_TOKENS = 200_000
_TOKENIZER = "tokenizer.json"


class TokenSpan(Frozen):
    """Consecutive tokens of one kind: prompt, sampled or observed."""

    kind: str
    texts: tuple[ForeignText, ...] = Field(description="one text per token")
    logprobs: tuple[float, ...] = Field(default=(), description="one per sampled token")
    gaps: tuple[float, ...] = Field(
        default=(),
        description="one per sampled token: the trainer's log-probability minus the sampler's; "
        "empty if not recorded",
    )
    versions: tuple[tuple[int, int], ...] = Field(
        default=(), description="(weight version, number of consecutive sampled tokens) pairs"
    )


class ShownRow(Frozen):
    """One token row of a rollout."""

    agent: ForeignText
    start: str
    parent: int | None = None
    spans: tuple[TokenSpan, ...]


class ShownTokens(Frozen):
    """The token rows of a rollout."""

    run: str
    rollout: ForeignText
    tokenizer: str = Field(default="", description="tokenizer file; empty if none was found")
    rows: tuple[ShownRow, ...]
    is_partial: bool = False


@operation("rollout.tokens", role=Role.OPERATOR, changes_state=False)
def show_tokens(request: ShowRollout, caller: Caller) -> ShownTokens:
    """Show the tokens of a rollout: text, kind, log-probability, weight version."""
    folder = readable_run(request.run, caller)
    _, record = find_rollout(open_log(folder, request.log), folder, request)
    path = _tokenizer_of(folder)
    decode = _decoder(path)
    rows, left = [], _MAX_TOKENS
    for row in record["rows"]:
        shown = _row(row, decode, left)
        left -= sum(len(span.texts) for span in shown.spans)
        rows.append(shown)
    return ShownTokens(
        run=folder.id,
        rollout=str(record["id"]),
        tokenizer=str(path or ""),
        rows=tuple(rows),
        is_partial=sum(map(_length, record["rows"])) > _MAX_TOKENS,
    )


def _length(row: RowRecord) -> int:
    return sum(length for _, length in row["spans"])


def _row(row: RowRecord, decode: Callable[[int], str], max_tokens: int) -> ShownRow:
    ids, logprobs = _unpack("i", row["ids"]), _unpack("f", row["logprobs"])
    gaps = _unpack("f", row.get("gaps") or "")
    versions = _versions(row.get("versions") or [], len(logprobs))
    spans, place, sampled = [], 0, 0
    for kind, length in row["spans"]:
        length = min(length, max_tokens - place)
        if length <= 0:
            break
        texts = tuple(decode(number) for number in ids[place : place + length])
        place += length
        if kind != "sampled":
            spans.append(TokenSpan(kind=kind, texts=texts))
            continue
        chosen = slice(sampled, sampled + length)
        spans.append(
            TokenSpan(
                kind=kind,
                texts=texts,
                logprobs=tuple(round(each, 4) for each in logprobs[chosen]),
                gaps=tuple(round(each, 7) for each in gaps[chosen]),
                versions=tuple(_run_lengths(versions[chosen])),
            )
        )
        sampled += length
    return ShownRow(
        agent=str(row["agent"]),
        start=str(row.get("start", "first")),
        parent=row.get("parent"),
        spans=tuple(spans),
    )


def _versions(runs: list[list[int]], count: int) -> list[int]:
    flat = [version for version, length in runs for _ in range(length)]
    return flat if len(flat) == count else []


def _run_lengths(versions: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(versions) + 1):
        if place == len(versions) or versions[place] != versions[start]:
            yield versions[start], place - start
            start = place


def _tokenizer_of(folder: RunFolder) -> Path | None:
    """Return the tokenizer file of a checkpoint, or the one that the run has recorded, of this run
    or of the training that it proves or ships; None if there is none."""
    training = Path(str(folder.read_spec().get("run") or folder.id)).name
    for run in dict.fromkeys((folder.path, folder.path.parent / training)):
        saved = reversed(list_checkpoints(RunFolder(run).checkpoints))
        recorded = [each.get("tokenizer") for each in read_lines(RunFolder(run).events)]
        files = [each.path / _TOKENIZER for each in saved]
        files += [Path(each) for each in reversed(recorded) if each]
        if found := next((each for each in files if each.is_file()), None):
            return found
    return None


def _decoder(path: Path | None) -> Callable[[int], str]:
    """Return a function that decodes one token id; without a tokenizer, it returns ⟨id⟩."""
    if path is None:
        return lambda number: f"⟨{number}⟩"
    if find_spec("tokenizers") is None:
        return lambda number: f"⟨{number}⟩"
    return _decoder_of(str(path), path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _decoder_of(path: str, _: int) -> Callable[[int], str]:
    """Load a tokenizer, which takes 0.1 s; cached by file and modification time."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    known: dict[int, str] = {}

    def decode(number: int) -> str:
        if number not in known:
            known[number] = str(tokenizer.decode([number], skip_special_tokens=False))
        return known[number]

    return decode


def _unpack(code: str, text: str) -> array[Any]:
    values: array[Any] = array(code)
    values.frombytes(base64.b64decode(text))
    return values
