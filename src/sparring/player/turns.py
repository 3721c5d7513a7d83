"""Sampled turns: the exact tokens of conversations, and the rows that they make.

Sampled ids are kept and spliced, never re-encoded from text. Each turn is a span of its
conversation's tokens. The first turn that continues another one appends to the same array; any
other begins with a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.contracts.policies import Codec, Finish, Sample
from sparring.contracts.rollouts import (
    Message,
    RequestedCall,
    ResultBody,
    RowStart,
    Span,
    TokenKind,
    TokenRow,
)

FindTurn = Callable[[Message], "SampledTurn | None"]


@dataclass(slots=True, eq=False)
class SampledTurn:
    """One turn of the model, at `tokens[start:end]` of its conversation.

    `tokens` may extend past the turn. `opening` holds the forced tokens that precede `start`, and
    `sample` is None until the turn is sampled. If `is_continuation`, the tokens since `before.end`
    are the messages after the turn `before`, with the tool results in `bodies`. If not, `before` is
    the turn that this one follows or was called from, and `row_start` says why a row begins.
    `is_hidden` marks a turn that the template changes in later prompts, such as one with thinking:
    no other turn continues it.
    """

    number: int
    agent: str
    tokens: array[int] = field(default_factory=lambda: array("i"))
    start: int = 0
    before: SampledTurn | None = None
    is_continuation: bool = False
    row_start: RowStart = RowStart.FIRST
    bodies: Sequence[ResultBody] = ()
    opening: array[int] = field(default_factory=lambda: array("i"))
    sample: Sample | None = None
    calls: tuple[RequestedCall, ...] = ()
    is_hidden: bool = False

    @property
    def end(self) -> int:
        """The position after the turn's last token."""
        return self.start + len(self.sample.ids) if self.sample is not None else self.start

    @property
    def is_cut_off(self) -> bool:
        """Whether the token limit ended the turn."""
        return self.sample is not None and self.sample.finish is Finish.LENGTH


class PromptWriter:
    """Writes token prompts: splices sampled turns and renders all other messages.

    `find` returns the sampled turn that an assistant message repeats, `tool_of` the tool of a call.
    """

    def __init__(
        self, codec: Codec, find: FindTurn, tool_of: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._codec = codec
        self._find = find
        self._tool_of = tool_of

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> array[int]:
        """Return the prompt of a whole conversation, with its sampled turns spliced in. If the
        template changes any assistant message in later turns, the whole prompt is rendered."""
        codec = self._codec
        if not codec.keeps_thinking:
            messages = [replace(each, thinking="") if each.thinking else each for each in messages]
        found = [(place, turn) for place, each in enumerate(messages) if (turn := self._find(each))]
        if not found or any(turn.is_hidden for _, turn in found) or not all_kept(messages, codec):
            return array("i", codec.encode_prompt(messages, tools).ids)
        first = found[0][0]
        tokens = array("i", codec.encode_prompt(messages[:first], tools).ids)
        self._write(tokens, messages[first:], (), is_turn_open=True)
        return tokens

    def extend(
        self, turn: SampledTurn, messages: Sequence[Message]
    ) -> tuple[array[int], list[ResultBody]]:
        """Return the tokens up to the end of a turn and of the messages after it, and where the
        tool results are."""
        tokens = turn.tokens if len(turn.tokens) == turn.end else turn.tokens[: turn.end]
        if turn.is_cut_off:
            tokens.append(self._codec.end_of_turn)
        return tokens, self._write(tokens, messages, turn.calls)

    def _write(
        self,
        tokens: array[int],
        messages: Sequence[Message],
        calls: Sequence[RequestedCall],
        *,
        is_turn_open: bool = False,
    ) -> list[ResultBody]:
        """Append the messages, up to the next generation prompt. `is_turn_open` means that a
        generation prompt precedes them; `calls` are those of the turn before."""
        bodies: list[ResultBody] = []
        waiting: list[Message] = []
        for message in messages:
            if message.role != "assistant":
                waiting.append(message)
                continue
            if not is_turn_open:
                bodies += self._observe(tokens, waiting, calls)
                waiting = []
            is_turn_open, calls = False, message.calls
            turn = self._find(message)
            if turn is None:
                tokens.extend(self._codec.encode_reply(message))
                continue
            tokens.extend(turn.opening + turn.tokens[turn.start : turn.end])
            if turn.is_cut_off:
                tokens.append(self._codec.end_of_turn)
        return bodies + self._observe(tokens, waiting, calls)

    def _observe(
        self, tokens: array[int], messages: Sequence[Message], calls: Sequence[RequestedCall]
    ) -> list[ResultBody]:
        encoded = self._codec.encode_continuation(messages, calls)
        start = len(tokens)
        tokens.extend(encoded.ids)
        return [
            ResultBody(
                self._tool_of(messages[body.message].call_id), start + body.start, start + body.stop
            )
            for body in encoded.bodies
            if messages[body.message].role == "tool"
        ]


def all_kept(messages: Sequence[Message], codec: Codec) -> bool:
    """Return whether the template leaves all assistant messages unchanged in later turns."""
    return all(codec.is_kept(each) for each in messages if each.role == "assistant")


def rows_of(
    turns: Iterable[SampledTurn], discarded: Collection[SampledTurn] = frozenset()
) -> list[TokenRow]:
    """Return the rows of the turns, discarded rows last. Exactly one row marks each sampled token
    as sampled.

    A row follows a conversation of one agent to its end. The first turn that continues another
    one continues its row; a branch starts a new row, whose prompt holds the tokens before it.
    """
    rows: list[list[SampledTurn]] = []
    row_of: dict[SampledTurn, list[SampledTurn]] = {}
    for turn in sorted(turns, key=lambda turn: (turn in discarded, turn.number)):
        row = row_of.get(turn.before) if turn.is_continuation and turn.before else None
        if (
            row is None
            or row[-1] is not turn.before
            or row[0].agent != turn.agent
            or (row[0] in discarded) != (turn in discarded)
        ):
            row = []
            rows.append(row)
        row.append(turn)
        row_of[turn] = row
    answered = [row for row in rows if row[0].sample is not None]
    places = {turn: place for place, row in enumerate(answered) for turn in row}
    return [
        _row(row, places.get(row[0].before) if row[0].before else None, row[0] in discarded)
        for row in answered
    ]


def _row(turns: Sequence[SampledTurn], parent: int | None, is_discarded: bool) -> TokenRow:
    first, last = turns[0], turns[-1]
    spans: list[Span] = []
    logprobs: array[float] = array("f")
    bodies: list[ResultBody] = []
    versions: list[tuple[int, int]] = []
    end = 0
    for turn in turns:
        given = turn.start - len(turn.opening) - end
        spans.append(Span(TokenKind.OBSERVED if end else TokenKind.PROMPT, given))
        bodies += turn.bodies if end else ()
        if turn.opening:
            spans.append(Span(TokenKind.OBSERVED, len(turn.opening)))
        end = turn.end
        if turn.sample is None:  # the rollout ended before
            continue
        spans.append(Span(TokenKind.SAMPLED, len(turn.sample.ids)))
        logprobs.extend(turn.sample.logprobs)
        if turn.sample.version is not None:
            versions.append((turn.sample.version, len(turn.sample.ids)))
    return TokenRow(
        first.agent,
        last.tokens[:end],
        logprobs,
        tuple(spans),
        tuple(bodies),
        first.row_start,
        parent,
        tuple(versions),
        is_discarded=is_discarded,
    )
