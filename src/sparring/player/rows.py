"""Builds token rows turn by turn. Sampled ids are spliced, never re-encoded from text."""

from __future__ import annotations

import copy
import json
from array import array
from collections.abc import Callable, Sequence

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Codec, Sample
from sparring.contracts.rollouts import Message, ResultBody, RowStart, Span, TokenKind, TokenRow
from sparring.player.conversation import Item, to_messages, turn_of
from sparring.player.prompts import Prompt

_IN_FLIGHT = -1  # the turn of a row whose reply is not known yet


def find_continued_row(rows: Sequence[GrowingRow], prompt: Prompt) -> GrowingRow | None:
    """Return the row whose conversation the prompt extends, or None. No row matches after a
    handoff, after an edit of the history, or after a change of instructions or tools."""
    return next((row for row in reversed(rows) if row.is_continued_by(prompt)), None)


class GrowingRow:
    """One append-only token sequence of one agent.

    The frame of a row is its instructions and tools. A turn with another frame starts a new row.
    """

    def __init__(self, agent: str, prompt: Prompt, codec: Codec) -> None:
        first = codec.encode_prompt(prompt.messages(), prompt.tools).ids
        self.agent = agent
        self.start = RowStart.FIRST
        self.parent: GrowingRow | None = None
        self.ids = array("i", first)
        self._frame = _frame(prompt)
        self._logprobs: array[float] = array("f")
        self._spans: list[Span] = [Span(TokenKind.PROMPT, len(first))]
        self._bodies: list[ResultBody] = []
        self._versions: list[tuple[int, int]] = []
        self._items: Sequence[Item] = ()
        self._turn = _IN_FLIGHT
        self._is_closed = False
        self._reply: list[Message] = []

    def follow(self, previous: GrowingRow | None, caller: GrowingRow | None) -> None:
        """Set `parent`, and set `start` to the reason for a new row.

        `previous` is the last row of the same run. `caller` is the row that a nested run was
        called from; it becomes the parent of the nested run's first row.
        """
        self.parent = previous or caller
        if previous is None:
            self.start = RowStart.NESTED if caller else RowStart.FIRST
        elif previous.agent != self.agent:
            self.start = RowStart.HANDOFF
        else:
            same_frame = previous._frame == self._frame
            self.start = RowStart.HISTORY if same_frame else RowStart.FRAME

    def is_continued_by(self, prompt: Prompt) -> bool:
        """Return whether this row is open and the prompt has the same frame and consists of the
        row's items, its reply and at least one further item."""
        items, last, seen = prompt.items, prompt.last_own_index, len(self._items)
        return (
            not self._is_closed
            and 0 <= last < len(items) - 1
            and turn_of(items[last]) == self._turn
            and self._frame == _frame(prompt)
            and all(turn_of(item) == self._turn for item in items[seen : last + 1])
            and list(items[:seen]) == list(self._items)
            and to_messages(items[seen : last + 1]) == self._reply
        )

    def copy(self) -> GrowingRow:
        """Return an independent copy."""
        other = copy.copy(self)
        other.ids = array("i", self.ids)
        other._logprobs = array("f", self._logprobs)
        other._spans, other._bodies = list(self._spans), list(self._bodies)
        other._versions = list(self._versions)
        return other

    def observe(self, prompt: Prompt, codec: Codec, tool_of: Callable[[str], str]) -> int:
        """Append the messages after the model's last turn; return the number of tokens added. Until
        the next reply is noted, no other turn continues the row."""
        self._turn = _IN_FLIGHT
        messages = to_messages(prompt.items[prompt.last_own_index + 1 :])
        calls = [call for turn in self._reply for call in turn.calls]
        encoded = codec.encode_continuation(messages, calls)
        start = len(self.ids)
        self.ids.extend(encoded.ids)
        self._spans.append(Span(TokenKind.OBSERVED, len(encoded.ids)))
        for body in encoded.bodies:
            message = messages[body.message]
            if message.role == "tool":
                tool = tool_of(message.call_id)
                self._bodies.append(ResultBody(tool, start + body.start, start + body.stop))
        return len(encoded.ids)

    def force(self, ids: array[int]) -> None:
        """Append tokens that are written for the model; they are not trained on."""
        self.ids.extend(ids)
        self._spans.append(Span(TokenKind.OBSERVED, len(ids)))

    def add_sample(self, sample: Sample) -> None:
        """Append sampled tokens. Raises InfrastructureError if there are none, or if their number
        differs from that of the log-probabilities."""
        if not sample.ids or len(sample.ids) != len(sample.logprobs):
            raise InfrastructureError(
                f"the policy returned {len(sample.ids)} tokens with {len(sample.logprobs)} "
                "log-probabilities; each sampled token needs one"
            )
        self.ids.extend(sample.ids)
        self._logprobs.extend(sample.logprobs)
        self._spans.append(Span(TokenKind.SAMPLED, len(sample.ids)))
        if sample.version is not None:
            self._versions.append((sample.version, len(sample.ids)))

    def close(self) -> None:
        """Prevent further turns from continuing this row. Used if later prompts do not contain the
        last turn exactly as sampled."""
        self._is_closed = True

    def note_reply(self, seen: Sequence[Item], reply: Message, turn: int) -> None:
        """Record the turn's input items and reply. A later turn continues this row only if its
        input repeats both unchanged."""
        self._items = list(seen)
        self._reply = [reply]
        self._turn = turn

    @property
    def is_answered(self) -> bool:
        """Whether the row has sampled tokens."""
        return len(self._logprobs) > 0

    def finished(self, parent: int | None = None) -> TokenRow:
        """Return the row as a TokenRow. `parent` is the parent's index in the rollout's rows."""
        return TokenRow(
            self.agent,
            self.ids,
            self._logprobs,
            tuple(self._spans),
            tuple(self._bodies),
            self.start,
            parent,
            tuple(self._versions),
        )


def _frame(prompt: Prompt) -> tuple[str, str]:
    return prompt.system_text(), json.dumps(prompt.tools)
