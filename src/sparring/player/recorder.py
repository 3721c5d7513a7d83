"""Records the exact tokens of one rollout: its model calls, its sampled turns, and its rows.

A call of any agent becomes a `ModelCall`, whichever door it comes through. The `Recorder` writes
its token prompt, samples the turn and makes the rows. Sampled ids are kept and spliced, never
re-encoded from text. Each turn is a span of its conversation's tokens: the first turn that
continues another one appends to the same array, and any other begins with a copy.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import (
    ChatPolicy,
    ChatRequest,
    Codec,
    Finish,
    Policy,
    Reply,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
    TokenPolicy,
    is_token_policy,
)
from sparring.contracts.rollouts import (
    Message,
    RequestedCall,
    ResultBody,
    RowStart,
    Span,
    TokenKind,
    TokenRow,
)
from sparring.player.episode import Episode

FindTurn = Callable[[Message], "SampledTurn | None"]


@dataclass(frozen=True)
class ModelCall:
    """One call of the model.

    `messages` are the whole conversation or, if the call `continues` a sampled turn, those after
    that turn. The first `leading` messages are instructions; None means all system messages before
    the first other message. `tools` have the form of Chat Completions. `tool_choice` is None,
    "none", "required" or a tool's name.
    `overridden` holds the client's sampling parameters, which the run's settings replace.
    `is_retry` is set if the client marks the call as a retry; `retry_key` is the idempotency key.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    model: str = ""
    overridden: Mapping[str, float] = field(default_factory=dict)
    is_retry: bool = False
    retry_key: str = ""
    leading: int | None = None
    continues: SampledTurn | None = None

    @property
    def system(self) -> str:
        """The text of the instructions."""
        return "\n\n".join(message.content for message in self.messages[: self.first_turn])

    @cached_property
    def first_turn(self) -> int:
        """The position of the first message after the instructions."""
        if self.leading is not None:
            return self.leading
        for number, message in enumerate(self.messages):
            if message.role != "system":
                return number
        return len(self.messages)

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools."""
        return [str(tool["function"]["name"]) for tool in self.tools]

    @cached_property
    def frame(self) -> str:
        """A digest of instructions, tools and output schema, which precede the conversation."""
        return digest(self.system, json.dumps([*self.tools, self.output_schema]))

    def parameters(self) -> tuple[Any, ...]:
        """Return the other parameters that the reply depends on. Calls with the same messages,
        frame and parameters are equal."""
        return (self.tool_choice, self.max_tokens, self.stop, self.parallel_tool_calls)

    def rendered(self) -> list[Message]:
        """Return the conversation as the chat template takes it: instructions and output schema in
        one system message. Token sampling does not enforce the schema, so the model reads it."""
        conversation = list(self.messages[self.first_turn :])
        system = with_output_schema(self.system, self.output_schema)
        return [Message("system", system), *conversation] if system else conversation


def with_output_schema(system: str, schema: Mapping[str, Any] | None) -> str:
    """Return the instructions with a request for a final answer in JSON that fits the schema."""
    if schema is None:
        return system
    request = (
        "Give your final answer as JSON that fits this schema:\n"
        f"{json.dumps(schema, sort_keys=True)}"
    )
    return f"{system}\n\n{request}" if system else request


def digest(*texts: str) -> str:
    """Return a digest of texts as 24 hex digits, the same in every process."""
    together = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        together.update(len(encoded).to_bytes(8, "big") + encoded)
    return together.hexdigest()[:24]


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


@dataclass(frozen=True, slots=True)
class Answer:
    """The policy's answer to one call, with its numbers of tokens."""

    reply: Reply
    finish: Finish
    prompt_tokens: int
    tokens: int


class Recorder:
    """The model calls of one rollout, whichever door they come through.

    With a token policy, a call that continues a sampled turn extends the tokens of that turn, and
    any other call starts a new row. A chat policy takes messages, and there are no rows. A door
    finds the turn that a call continues: `TaggedTurns` for the agents SDK, `MessageTree` for HTTP.
    The rows hold the turns that a door has put into `turns`.
    """

    def __init__(self, policy: Policy, episode: Episode, find: FindTurn = lambda _: None) -> None:
        self.name = policy.name
        self.turns: list[SampledTurn] = []
        self._episode = episode
        self._policy = policy
        self.token_policy: TokenPolicy | None = None
        if is_token_policy(policy):
            self.token_policy = policy
            self._writer = PromptWriter(policy.codec, find, episode.tool_of)

    def begin(
        self,
        number: int,
        agent: str,
        call: ModelCall,
        before: SampledTurn | None = None,
        row_start: RowStart = RowStart.FIRST,
    ) -> SampledTurn:
        """Write the token prompt of a call and return its turn. `before` and `row_start` belong to
        the row that starts if the call continues no turn. Raises EpisodeOver without budget."""
        policy, episode, base = self.token_policy, self._episode, call.continues
        if policy is None:
            return SampledTurn(number, agent, before=before)
        episode.tokens_left()  # ends the rollout before a long result is tokenised
        if base is None:
            turn = SampledTurn(number, agent, before=before, row_start=row_start)
            turn.tokens = self._writer.render(call.rendered(), call.tools)
        else:
            turn = SampledTurn(number, agent, before=base, is_continuation=True)
            turn.row_start = RowStart.HISTORY  # of a branch
            turn.tokens, turn.bodies = self._writer.extend(base, call.messages)
            episode.spent += len(turn.tokens) - base.end
        if call.tool_choice not in (None, "none"):
            tool = None if call.tool_choice == "required" else call.tool_choice
            turn.opening = policy.codec.encode_call_opening(tool)
            turn.tokens.extend(turn.opening)
            episode.spent += len(turn.opening)
        turn.start = len(turn.tokens)
        return turn

    async def answer(
        self, turn: SampledTurn, key: SampleKey, call: ModelCall, sampling: Sampling
    ) -> Answer:
        """Ask the policy for the turn's reply. Raises InfrastructureError if there are no tokens,
        or if their number differs from that of the log-probabilities."""
        episode, policy = self._episode, self.token_policy
        if policy is not None:
            request = SampleRequest(key, turn.tokens, sampling)
            with episode.deadlines.paused() if policy.samples_in_lockstep else nullcontext():
                sample = await policy.sample(request)
            if not sample.ids or len(sample.ids) != len(sample.logprobs):
                raise InfrastructureError(
                    f"the policy returned {len(sample.ids)} tokens with {len(sample.logprobs)} "
                    "log-probabilities; each sampled token needs one"
                )
            turn.tokens.extend(sample.ids)
            turn.sample = sample
            reply = policy.codec.parse(turn.opening + sample.ids, call.tools)
            turn.is_hidden = not policy.codec.is_kept(reply, sample.ids)
            answer = Answer(reply, sample.finish, turn.start, len(sample.ids))
        else:
            chat = await cast("ChatPolicy", self._policy).reply(
                ChatRequest(
                    key,
                    call.messages,
                    call.tools,
                    sampling,
                    call.output_schema,
                    call.tool_choice,
                    call.parallel_tool_calls,
                )
            )
            answer = Answer(chat.reply, chat.finish, chat.prompt_tokens, chat.sampled_tokens)
        episode.count_tokens(answer.prompt_tokens, answer.tokens)
        episode.spent += answer.tokens
        return answer

    def rows(self, discarded: Collection[SampledTurn] = frozenset()) -> list[TokenRow]:
        """Return the rows of the turns in `turns`; none for a chat policy."""
        return rows_of(self.turns, discarded)


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
