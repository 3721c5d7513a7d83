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


def find_continued_row(rows: Sequence[GrowingRow], prompt: Prompt) -> GrowingRow | None:
    """Return the row that this turn only appends to. None for another agent, an edited or
    filtered history, and changed instructions or tools."""
    return next((row for row in reversed(rows) if row.is_continued_by(prompt)), None)


class GrowingRow:
    """One append-only token sequence of one agent.

    Its frame is the instructions and tools: a change of them starts a new row.
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
        self._turn = -1
        self._is_closed = False
        self._reply: list[Message] = []

    def follow(self, previous: GrowingRow | None, caller: GrowingRow | None) -> None:
        """Note why this row begins: what `previous`, the last row of the same run, could not be
        continued for. The first row of a nested run is called from `caller`."""
        self.parent = previous or caller
        if previous is None:
            self.start = RowStart.NESTED if caller else RowStart.FIRST
        elif previous.agent != self.agent:
            self.start = RowStart.HANDOFF
        else:
            same_frame = previous._frame == self._frame
            self.start = RowStart.HISTORY if same_frame else RowStart.FRAME

    def is_continued_by(self, prompt: Prompt) -> bool:
        """Return whether the prompt repeats this row's items and reply and appends to them."""
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
        """Append the messages since the model's last turn; returns the number of tokens."""
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
        """Append tokens of the model's turn that it did not sample; they are not trained on."""
        self.ids.extend(ids)
        self._spans.append(Span(TokenKind.OBSERVED, len(ids)))

    def add_sample(self, sample: Sample) -> None:
        """Append sampled tokens; raises InfrastructureError without one log-probability each."""
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
        """Let no turn continue this row: later turns do not see it as it was sampled."""
        self._is_closed = True

    def note_reply(self, seen: Sequence[Item], reply: Message, turn: int) -> None:
        """Record the turn's input items and reply. A later turn continues this row only if both
        come back unchanged."""
        self._items = list(seen)
        self._reply = [reply]
        self._turn = turn

    @property
    def is_answered(self) -> bool:
        """Whether the row has sampled tokens."""
        return len(self._logprobs) > 0

    def finished(self, parent: int | None = None) -> TokenRow:
        """Return the row as a TokenRow; `parent` is the position of the row that it follows."""
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
