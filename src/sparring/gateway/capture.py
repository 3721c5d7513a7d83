"""The HTTP door to the recorder: finds what the calls of one rollout's session continue.

Clients send their whole history as text with every call, several calls at a time, and some calls
again. A reply that comes back unchanged keeps its sampled ids, and a repeated call gets the earlier
reply.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.contracts.policies import Finish, Policy, Reply, SampleKey, Sampling
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    RequestedCall,
    RowStart,
    TokenRow,
)
from sparring.gateway.wire import MAIN, SUB_AGENT, FinishReason, ModelReply, Refused
from sparring.player.episode import Episode, EpisodeOver, Turn
from sparring.player.message_tree import MessageTree, Node, Place, TreeReply
from sparring.player.recorder import Answer, ModelCall, Recorder, SampledTurn, all_kept


@dataclass(slots=True, eq=False)
class Exchange:
    """One call and its reply. `number` is the number of earlier exchanges for equal calls.

    `retry_keys` holds the idempotency keys of the call and its repeats. `is_delivered` is set if
    the client is still connected when the response starts.
    """

    number: int
    task: asyncio.Task[ModelReply]
    retry_keys: frozenset[str] = frozenset()
    is_delivered: bool = False

    def answers(self, call: ModelCall) -> bool:
        """Return whether an equal call gets this reply instead of a new one.

        It does if the client marks it as a retry, if it has a known idempotency key, or if it has
        no key and this reply is pending or undelivered. The reply of a failed call is never reused.
        """
        if self.task.done() and (self.task.cancelled() or self.task.exception() is not None):
            return False
        if call.is_retry or call.retry_key in self.retry_keys:
            return True
        return not self.is_delivered and not call.retry_key

    def reply(self) -> ModelReply:
        """Return the reply of a finished call; raises Refused if the call failed."""
        if self.task.cancelled():
            raise Refused(410, "this rollout has ended; its session takes no more calls")
        return self.task.result()


Label = Callable[[ModelCall], str | None]
_GONE = 410


class Capture:
    """The model calls of one rollout. `begin` and `close` run on the rollout's event loop.

    `when_called_after_end` is called each time a call is refused because the rollout has ended.
    """

    def __init__(
        self, episode: Episode, policy: Policy, temperature: float, label: Label | None = None
    ) -> None:
        self._episode = episode
        self._tree = MessageTree()
        self._recorder = Recorder(policy, episode, self._tree.find)
        self._temperature = temperature
        self._label = label
        self._exchanges: dict[tuple[Node, Any], list[Exchange]] = defaultdict(list)
        self._tasks: set[asyncio.Task[ModelReply]] = set()
        self._main_frame = ""
        self._has_main = False  # if labels name no main agent, every reply is the answer so far
        self._frames: list[tuple[object, str]] = []
        self._calls = 0
        self._is_closed = False
        self._unknown: list[str] = []
        self.overridden: dict[str, set[float]] = {}
        self.when_called_after_end: Callable[[], None] = lambda: None

    @property
    def calls(self) -> int:
        """The number of calls so far. Failed calls count; repeated calls do not."""
        return self._calls

    @property
    def model(self) -> str:
        """The policy's name."""
        return self._recorder.name

    def unknown_tools(self) -> list[str]:
        """Return the tools that the last reply calls although its request did not offer them."""
        return list(self._unknown)

    def rows(self) -> list[TokenRow]:
        """Return the token rows, discarded ones included; none for a chat policy."""
        return self._recorder.rows(self._tree.discarded())

    def close(self) -> None:
        """Cancel pending calls and refuse new ones."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def count_tokens(self, call: ModelCall) -> int:
        """Return the number of tokens in a call's prompt; for a chat policy, an estimate from the
        length of the messages, at four characters per token."""
        policy = self._recorder.token_policy
        if policy is None:
            return sum(len(message.content) for message in call.messages) // 4 + 1
        return len(policy.codec.encode_prompt(call.rendered(), call.tools).ids)

    def begin(self, call: ModelCall) -> Exchange:
        """Start to answer a call and return its exchange; a repeated call gets the earlier one."""
        if not call.messages or call.messages[-1].role == "assistant":
            message = "send at least one message; the last one must not have the role assistant"
            raise Refused(400, message, "messages")
        if self._is_closed or self._episode.is_over:
            self.when_called_after_end()
            raise Refused(_GONE, self._ended_message())
        for name, value in call.overridden.items():
            self.overridden.setdefault(name, set()).add(value)
        frame = self._frame_of(call)
        place = self._tree.place(call, frame)
        earlier = self._exchanges[place.node, call.parameters()]
        exchange = next((each for each in reversed(earlier) if each.answers(call)), None)
        if exchange is None:
            with self._refusals():
                task = self._start(call, frame, place, len(earlier))
            exchange = Exchange(len(earlier), task)
            earlier.append(exchange)
        if call.retry_key:
            exchange.retry_keys |= {call.retry_key}
        return exchange

    # ------------------------------------------------------------------ places

    def _frame_of(self, call: ModelCall) -> str:
        """Return `call.frame`. Frames of earlier calls are found by comparison, which is faster
        than computing the digest."""
        parts = (call.system, call.tools, call.output_schema)
        for known, frame in self._frames:
            if known == parts:
                return frame
        self._frames.append((parts, call.frame))
        self._episode.offers_tools |= bool(call.tools)
        return call.frame

    def _start(
        self, call: ModelCall, frame: str, place: Place, repeats: int
    ) -> asyncio.Task[ModelReply]:
        """Record the call and return the task that answers it; raises EpisodeOver at a limit."""
        episode, before = self._episode, place.before
        episode.agent = self._agent_of(call, frame)
        if place.depth >= episode.limits.max_turns:
            episode.end(Ending.TURN_LIMIT, f"no answer within {episode.limits.max_turns} turns")
            raise EpisodeOver
        self._tree.note_uses(call, place, self._calls)
        turn = episode.begin_turn()
        episode.add_messages(place.new)
        branch = place.branch(call, episode.case, repeats)
        turn = replace(turn, key=SampleKey(episode.key, place.depth, branch))
        self._calls += 1
        sampled = self._begin(turn, call, place)
        reply = TreeReply(sampled, place.node, before, place.depth, branch)
        task = asyncio.get_running_loop().create_task(self._answer(call, turn, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _agent_of(self, call: ModelCall, frame: str) -> str:
        named = self._label(call) if self._label is not None else None
        if not named:
            self._main_frame = self._main_frame or frame
        agent = named or (MAIN if frame == self._main_frame else SUB_AGENT)
        self._has_main = self._has_main or agent == MAIN
        return agent

    def _begin(self, turn: Turn, call: ModelCall, place: Place) -> SampledTurn:
        """Write the prompt: after the last reply if the template keeps it and what follows it."""
        policy, before = self._recorder.token_policy, place.before
        if before is None:
            start = RowStart.FRAME if turn.agent == MAIN else RowStart.NESTED
            start = RowStart.FIRST if turn.number == 0 else start
            return self._recorder.begin(turn.number, turn.agent, call, row_start=start)
        if policy is not None:
            if before.turn.is_hidden or not all_kept(place.after, policy.codec):
                self._tree.use(before, self._calls)
            else:
                call = replace(call, messages=place.after, leading=0, continues=before.turn)
        return self._recorder.begin(turn.number, turn.agent, call, before.turn, RowStart.HISTORY)

    # ------------------------------------------------------------------ answering

    async def _answer(self, call: ModelCall, turn: Turn, reply: TreeReply) -> ModelReply:
        with self._refusals():
            left = self._episode.tokens_left()
            limit = left if call.max_tokens is None else max(1, min(left, call.max_tokens))
            sampling = Sampling(self._temperature, limit)
            answer = await self._recorder.answer(reply.turn, turn.key, call, sampling)
            return self._record(call, turn, reply, answer, is_budget_limit=limit == left)

    def _record(
        self,
        call: ModelCall,
        turn: Turn,
        reply: TreeReply,
        answer: Answer,
        *,
        is_budget_limit: bool,
    ) -> ModelReply:
        """Add the reply to the tree and the episode, and record the ending that it causes."""
        episode = self._episode
        parsed = _allowed(answer.reply, call)
        stopped_at = first_stop(parsed.content, call.stop)
        if stopped_at:  # what the model wrote after it does not count
            parsed = Reply(parsed.content.partition(stopped_at)[0], parsed.thinking)
        answer_before = episode.answer
        calls = tuple(episode.add_reply(parsed, turn))
        if self._has_main and turn.agent != MAIN:
            episode.answer = answer_before
        self._unknown = [each.tool for each in calls if each.tool not in call.tool_names]
        for each in calls:
            if each.tool in self._unknown:
                episode.note_failure(each.id, CallFailure.UNKNOWN_TOOL)
        is_cut_off = answer.finish is Finish.LENGTH and not stopped_at
        if is_cut_off and is_budget_limit:
            episode.end(Ending.TOKEN_BUDGET, "the answer was cut off")
        elif parsed.malformed and turn.agent == MAIN:
            episode.end(Ending.UNPARSABLE_CALL, parsed.malformed)
        reply.content, reply.turn.calls = parsed.content, calls
        self._recorder.turns.append(reply.turn)
        self._tree.add(reply)
        return ModelReply(
            number=turn.number,
            content=parsed.content,
            thinking=parsed.thinking,
            calls=calls,
            finish=_finish_reason(calls, is_cut_off=is_cut_off),
            prompt_tokens=answer.prompt_tokens,
            sampled_tokens=answer.tokens,
            stopped_at=stopped_at,
        )

    # ------------------------------------------------------------------ endings

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors into Refused. Errors other than EpisodeOver and Refused end the rollout."""
        try:
            yield
        except EpisodeOver:
            self.when_called_after_end()
            raise Refused(_GONE, self._ended_message()) from None
        except Refused:
            raise
        except Exception as error:
            self._episode.end(Ending.INFRASTRUCTURE_ERROR, f"{type(error).__name__}: {error}")
            raise Refused(_GONE, f"{type(error).__name__}: {error}") from error

    def _ended_message(self) -> str:
        ending = self._episode.ending
        why = f" ({ending.value})" if ending is not None else ""
        return f"this rollout has ended{why}; its session takes no more calls"


def _allowed(reply: Reply, call: ModelCall) -> Reply:
    """Return the reply without calls that the request does not allow."""
    if call.tool_choice == "none":
        return replace(reply, calls=(), malformed="")
    if call.parallel_tool_calls is False:
        return replace(reply, calls=reply.calls[:1])
    return reply


def first_stop(text: str, stops: Sequence[str]) -> str:
    """Return the stop sequence that comes first in the text; empty if it contains none."""
    found = [stop for stop in stops if stop and stop in text]
    return min(found, key=text.find, default="")


def _finish_reason(calls: Sequence[RequestedCall], *, is_cut_off: bool) -> FinishReason:
    if is_cut_off:
        return FinishReason.LENGTH
    return FinishReason.TOOL_CALLS if calls else FinishReason.STOP
