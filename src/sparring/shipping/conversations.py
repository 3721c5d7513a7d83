"""The prompts that an agent was trained with: messages, tools and token ids, one per case.

They are recorded while the player runs the agent with a scripted model, so that they contain the
same instructions, tool schemas and worked examples as in training.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.json import JsonObject
from sparring.contracts.policies import Encoded, Reply
from sparring.contracts.rollouts import Message, Rollout, TokenKind
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.player.conversation import Reframe
from sparring.player.external_agent import PlayedAgent
from sparring.player.player import ContextFactory
from sparring.player.worlds import end_world
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """A chat up to the next reply of an agent's model, and its ids as the training codec encodes
    them."""

    case: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    ids: array[int]
    agent: str = ""

    @property
    def system(self) -> str:
        """The instructions; empty if there are none."""
        first = self.messages[0]
        return first.content if first.role == "system" else ""


class _RecordingCodec:
    """A codec that records the prompts it encodes."""

    def __init__(self, codec: ChatCodec) -> None:
        self._codec = codec
        self.tokenizer = codec.tokenizer
        self.end_of_turn = codec.end_of_turn
        self.recorded: list[tuple[tuple[Message, ...], str, array[int]]] = []

    def encode_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Encoded:
        """Encode a conversation and record it."""
        encoded = self._codec.encode_prompt(messages, tools)
        self.recorded.append((tuple(messages), json.dumps(list(tools)), encoded.ids))
        return encoded

    def parse(self, ids: array[int]) -> Reply:
        """Parse sampled ids."""
        return self._codec.parse(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)


async def first_prompts(
    agent: PlayedAgent,
    codec: ChatCodec,
    plays: Iterable[Play],
    context: ContextFactory | None,
    *,
    examples: Sequence[JsonObject] = (),
    reframe: Reframe | None = None,
) -> list[EncodedChat]:
    """Play each case with a model whose replies are empty; return the first prompt of each, with
    these worked examples, and instructions and tool schemas from `reframe`."""
    conversations = []
    for play in plays:
        recording = _RecordingCodec(codec)
        policy = ScriptedPolicy(lambda _: "", recording)  # type: ignore[arg-type]
        player = Player(
            agent,
            policy,
            limits=Limits(max_concurrency=1, max_turns=1),
            context=context,
            examples=examples,
            reframe=reframe,
        )
        rollout = await player.play_one(play)
        await end_world(rollout.world)
        if recording.recorded:
            messages, tools, ids = recording.recorded[0]
            schemas = tuple(json.loads(tools))
            conversations.append(EncodedChat(play.case.id, messages, schemas, ids, agent.name))
    return conversations


def continued(first: EncodedChat, rollout: Rollout, codec: ChatCodec) -> EncodedChat | None:
    """Return the conversation up to a rollout's last reply. Return None if the rollout has only
    one turn or several token rows, does not begin with the messages of `first`, or does not end
    with a reply."""
    given = [message for message in first.messages if message.role != "system"]
    played = list(rollout.messages)
    if len(rollout.rows) != 1 or len(played) < len(given) + 3 or played[-1].role != "assistant":
        return None
    if [each.content for each in played[: len(given)]] != [each.content for each in given]:
        return None
    messages = (*first.messages, *played[len(given) : -1])
    if messages[-1].role == "assistant":
        return None
    ids = codec.encode_prompt(messages, first.tools).ids
    return EncodedChat(first.case, messages, first.tools, ids, first.agent)


def trained_ids(rollout: Rollout) -> array[int]:
    """Return the ids of a rollout's first prompt; empty if the rollout has no token rows."""
    if not rollout.rows:
        return array("i")
    first = rollout.rows[0]
    length = first.spans[0].length if first.spans[0].kind is TokenKind.PROMPT else 0
    return first.ids[:length]
