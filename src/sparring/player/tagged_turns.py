"""Finds the sampled turn that a call of the SDK continues, by the tag of the turn's items."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents import ModelResponse, Usage

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.conversation import Item, to_items, to_messages, turn_of
from sparring.player.prompts import Prompt
from sparring.player.recorder import Answer
from sparring.player.turns import SampledTurn

_MOST_TURNS = 256


@dataclass(frozen=True, slots=True)
class _Tagged:
    """A sampled turn, the items of its prompt, what preceded them, and its reply."""

    turn: SampledTurn
    items: Sequence[Item]
    frame: tuple[Any, ...]
    reply: Message


class TaggedTurns:
    """The last 256 sampled turns by their tags. The SDK passes an item's tag back with the item."""

    def __init__(self) -> None:
        self._turns: OrderedDict[int, _Tagged] = OrderedDict()

    def continued_by(self, prompt: Prompt) -> SampledTurn | None:
        """Return the turn that the prompt continues: it has the turn's instructions and tools,
        repeats its items and its reply unchanged, and adds at least one item. None after a handoff,
        after an edit of the history, and if the template changes the turn in later prompts."""
        items, last = prompt.items, prompt.last_own_index
        if not 0 <= last < len(items) - 1:
            return None
        tag = turn_of(items[last])
        tagged = self._turns.get(tag) if tag is not None else None
        if tagged is None or tagged.turn.is_hidden or tagged.frame != prompt.frame:
            return None
        seen = len(tagged.items)
        is_repeated = (
            all(turn_of(item) == tag for item in items[seen : last + 1])
            and list(items[:seen]) == list(tagged.items)
            and to_messages(items[seen : last + 1]) == [tagged.reply]
        )
        return tagged.turn if is_repeated else None

    def response(
        self,
        tag: int,
        turn: SampledTurn,
        prompt: Prompt,
        answer: Answer,
        calls: Sequence[RequestedCall],
    ) -> ModelResponse:
        """Return the answer as the SDK takes it, with tagged items, and remember the turn."""
        turn.calls = tuple(calls)
        if turn.sample is not None:
            reply = Message("assistant", answer.reply.content, calls=turn.calls)
            self._turns[tag] = _Tagged(turn, list(prompt.items), prompt.frame, reply)
            if len(self._turns) > _MOST_TURNS:
                self._turns.popitem(last=False)
        usage = Usage(
            requests=1,
            input_tokens=answer.prompt_tokens,
            output_tokens=answer.tokens,
            total_tokens=answer.prompt_tokens + answer.tokens,
        )
        return ModelResponse(to_items(answer.reply, calls, tag), usage, response_id=None)
