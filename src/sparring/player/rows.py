"""Token rows while they grow, turn by turn, by splicing."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.policies import Encoded, Sample
from sparring.contracts.rollouts import Message, ResultBody, Span, TokenKind, TokenRow
from sparring.player.conversation import Item, turn_of


class GrowingRow:
    """One sequence of one agent. It only ever grows at its end.

    `items` are the SDK's items as the model last saw them: as long as they come back
    unchanged, with what the model then said behind them, the row can be continued.
    """

    def __init__(self, agent: str, system: str, tools: str, prompt: array[int]) -> None:
        self.agent = agent
        self.ids = array("i", prompt)
        self._frame = (system, tools)
        self._logprobs: array[float] = array("f")
        self._spans: list[Span] = [Span(TokenKind.PROMPT, len(prompt))]
        self._bodies: list[ResultBody] = []
        self._items: Sequence[Item] = ()
        self._turn = -1

    def continues(self, system: str, tools: str, items: Sequence[Item], last: int) -> bool:
        """Whether `items`, whose last one of ours is at `last`, only add to this row."""
        seen = len(self._items)
        return (
            last + 1 < len(items)
            and self._frame == (system, tools)
            and turn_of(items[last]) == self._turn
            and all(turn_of(item) == self._turn for item in items[seen : last + 1])
            and list(items[:seen]) == list(self._items)
        )

    def observe(self, encoded: Encoded, messages: Sequence[Message], tools: Sequence[str]) -> None:
        """What was said to the model since its last turn."""
        start = len(self.ids)
        self.ids.extend(encoded.ids)
        self._spans.append(Span(TokenKind.OBSERVED, len(encoded.ids)))
        for body in encoded.bodies:
            if messages[body.message].role == "tool":
                tool = tools[body.message]
                self._bodies.append(ResultBody(tool, start + body.start, start + body.stop))

    def add_sample(self, sample: Sample, items: Sequence[Item], turn: int) -> None:
        if not sample.ids or len(sample.ids) != len(sample.logprobs):
            raise MachineryFailure(
                f"the policy returned {len(sample.ids)} tokens with {len(sample.logprobs)} "
                "log-probabilities; each sampled token needs one"
            )
        self.ids.extend(sample.ids)
        self._logprobs.extend(sample.logprobs)
        self._spans.append(Span(TokenKind.SAMPLED, len(sample.ids)))
        self._items = list(items)
        self._turn = turn

    @property
    def is_answered(self) -> bool:
        return len(self._logprobs) > 0

    def finished(self) -> TokenRow:
        return TokenRow(
            self.agent, self.ids, self._logprobs, tuple(self._spans), tuple(self._bodies)
        )
