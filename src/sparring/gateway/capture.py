"""Answers the model calls of one rollout from its policy, and records them.

Token prompts are spliced: a reply that the client sends back unchanged keeps its sampled ids, and
only new messages are rendered and tokenised. If the chat template changes a reply in later turns,
for example by removing its thinking, the whole prompt is rendered again.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace

from sparring.contracts.policies import (
    ChatPolicy,
    Finish,
    Policy,
    Reply,
    SampleKey,
    Sampling,
    TokenPolicy,
)
from sparring.contracts.rollouts import CallFailure, Ending, Message, RequestedCall, TokenRow
from sparring.gateway.answers import Sampled, ask, finish_reason, first_stop, sample
from sparring.gateway.calls import (
    MAIN,
    SUB_AGENT,
    ModelCall,
    ModelReply,
    Refused,
)
from sparring.gateway.contexts import Context, all_kept, continue_context, start_context
from sparring.gateway.exchanges import Exchange
from sparring.gateway.message_tree import MessageTree, Node, Place, SampledReply
from sparring.gateway.rows import rows_of
from sparring.gateway.seeds import branch_of
from sparring.player.episode import Episode, EpisodeOver, Turn
from sparring.player.prompts import with_output_schema

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
        self._policy = policy
        # `isinstance` with a protocol takes 80 µs, too long for every call.
        self._token_policy = policy if isinstance(policy, TokenPolicy) else None
        self._temperature = temperature
        self._label = label
        self._tree = MessageTree()
        self._replies: list[SampledReply] = []
        self._unused: set[SampledReply] = set()  # replies whose text no later call contains
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
        return self._policy.name

    def unknown_tools(self) -> list[str]:
        """Return the tools that the last reply calls although its request did not offer them."""
        return list(self._unknown)

    def rows(self) -> list[TokenRow]:
        """Return the token rows, discarded ones included; none for a chat policy."""
        return rows_of(self._replies) if self._token_policy is not None else []

    def close(self) -> None:
        """Cancel pending calls and refuse new ones."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def count_tokens(self, call: ModelCall) -> int:
        """Return the number of tokens in a call's prompt; for a chat policy, an estimate from the
        length of the messages, at four characters per token."""
        if self._token_policy is None:
            return sum(len(message.content) for message in call.messages) // 4 + 1
        return len(self._token_policy.codec.encode_prompt(_rendered(call), call.tools).ids)

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
        exchange = place.node.repeated(call)
        if exchange is None:
            earlier = place.node.exchanges.setdefault(call.parameters(), [])
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
        episode = self._episode
        episode.agent = self._agent_of(call, frame)
        base, after = _base_of(place.node)
        depth = 0 if base is None else base.depth + 1
        if depth >= episode.limits.turns:
            episode.end(Ending.TURN_LIMIT, f"no answer within {episode.limits.turns} turns")
            raise EpisodeOver
        self._note_uses(call, after, base)
        turn = episode.begin_turn()
        episode.add_messages(place.new)
        branch = branch_of(call, base, after, episode.case, repeats)
        turn = Turn(turn.number, turn.agent, SampleKey(episode.key, depth, branch))
        self._calls += 1
        context = self._context(call, base, after)
        work = self._answer(call, place.node, turn, context)
        task = asyncio.get_running_loop().create_task(work)
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

    def _note_uses(self, call: ModelCall, after: list[Message], base: SampledReply | None) -> None:
        """Update `last_use` of earlier replies that the call contains besides `base`, as a message
        or quoted in a text."""
        for message in after:
            if (sampled := self._tree.sampled(message)) is not None:
                sampled.last_use = self._calls
        texts = [message.content for message in (*call.messages[: call.first_turn], *after)]
        for reply in [each for each in self._unused if each is not base]:
            if any(reply.content in text for text in texts):
                reply.last_use = self._calls
                self._unused.discard(reply)

    # ------------------------------------------------------------------ answering

    def _context(
        self, call: ModelCall, base: SampledReply | None, after: list[Message]
    ) -> Context | None:
        """Return the token prompt; None for a chat policy, which takes messages."""
        policy, episode = self._token_policy, self._episode
        if policy is None:
            return None
        episode.tokens_left()
        if base is None or base.is_hidden or not all_kept(after, policy.codec):
            context = start_context(_rendered(call), call.tools, policy.codec, self._tree)
            if base is not None:
                context.follows, base.last_use = base, self._calls
                self._unused.discard(base)
        else:
            context = continue_context(base, after, policy.codec, self._tree, episode.tool_of)
            episode.spent += context.observed
        if call.tool_choice not in (None, "none"):
            opening = policy.codec.encode_call_opening(
                None if call.tool_choice == "required" else call.tool_choice
            )
            context.force(opening)
            episode.spent += len(opening)
        return context

    async def _answer(
        self, call: ModelCall, node: Node, turn: Turn, context: Context | None
    ) -> ModelReply:
        with self._refusals():
            left = self._episode.tokens_left()
            limit = left if call.max_tokens is None else max(1, min(left, call.max_tokens))
            sampling = Sampling(self._temperature, limit)
            try:
                sampled = await self._sample(call, context, turn, sampling)
            except BaseException:
                if context is not None:
                    context.undo()
                raise
            return self._record(call, node, turn, context, sampled, is_budget_limit=limit == left)

    async def _sample(
        self, call: ModelCall, context: Context | None, turn: Turn, sampling: Sampling
    ) -> Sampled:
        if context is None or self._token_policy is None:
            assert isinstance(self._policy, ChatPolicy)
            return await ask(self._policy, call, turn.key, sampling)
        policy, deadlines = self._token_policy, self._episode.deadlines
        with deadlines.paused() if policy.samples_in_lockstep else contextlib.nullcontext():
            return await sample(policy, call, context, turn.key, sampling)

    def _record(
        self,
        call: ModelCall,
        node: Node,
        turn: Turn,
        context: Context | None,
        sampled: Sampled,
        *,
        is_budget_limit: bool,
    ) -> ModelReply:
        """Add the reply to the tree and the episode, and record the ending that it causes."""
        episode = self._episode
        episode.count_tokens(sampled.prompt_tokens, sampled.sampled_tokens)
        episode.spent += sampled.sampled_tokens
        parsed = _allowed(sampled.reply, call)
        stopped_at = first_stop(parsed.content, call.stop)
        if stopped_at:  # what the model wrote after it does not count
            parsed = Reply(parsed.content.partition(stopped_at)[0], parsed.thinking)
        answer = episode.answer
        calls = tuple(episode.add_reply(parsed, turn))
        if self._has_main and turn.agent != MAIN:
            episode.answer = answer
        self._unknown = [each.tool for each in calls if each.tool not in call.tool_names]
        for each in calls:
            if each.tool in self._unknown:
                episode.note_failure(each.id, CallFailure.UNKNOWN_TOOL)
        is_cut_off = sampled.finish is Finish.LENGTH and not stopped_at
        if is_cut_off and is_budget_limit:
            episode.end(Ending.TOKEN_BUDGET, "the answer was cut off")
        elif parsed.malformed and turn.agent == MAIN:
            episode.end(Ending.UNPARSABLE_CALL, parsed.malformed)
        reply = self._reply(node, turn, context, sampled, parsed.content, calls)
        self._tree.add_reply(node, Message("assistant", parsed.content, calls=calls), reply)
        return ModelReply(
            number=turn.number,
            content=parsed.content,
            thinking=parsed.thinking,
            calls=calls,
            finish=finish_reason(calls, is_cut_off=is_cut_off),
            prompt_tokens=sampled.prompt_tokens,
            sampled_tokens=sampled.sampled_tokens,
            stopped_at=stopped_at,
        )

    def _reply(
        self,
        node: Node,
        turn: Turn,
        context: Context | None,
        sampled: Sampled,
        content: str,
        calls: tuple[RequestedCall, ...],
    ) -> SampledReply:
        policy, ids = self._token_policy, sampled.sample.ids
        reply = SampledReply(
            number=turn.number,
            agent=turn.agent,
            branch=turn.key.branch,
            prompt=node,
            parent=context.base if context is not None else _base_of(node)[0],
            tokens=context.tokens if context is not None else array("i"),
            start=sampled.start,
            end=sampled.start + len(ids),
            sample=sampled.sample,
            bodies=context.bodies if context is not None else (),
            depth=turn.key.turn,
            is_cut_off=sampled.finish is Finish.LENGTH,
            content=content,
            calls=calls,
            opening=context.opening if context is not None else array("i"),
            is_hidden=policy is not None and not policy.codec.is_kept(sampled.reply, ids),
            follows=context.follows if context is not None else None,
        )
        if reply.parent is not None:
            reply.parent.children.append(reply)
            self._unused.discard(reply.parent)
        if content:
            self._unused.add(reply)
        self._replies.append(reply)
        return reply

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


def _base_of(node: Node) -> tuple[SampledReply | None, list[Message]]:
    """Return the last sampled reply at or above a node, and the messages after it."""
    after: list[Message] = []
    for each in node.upward():
        if each.reply is not None:
            return each.reply, after[::-1]
        if each.parent is not None:
            after.append(each.message)
    return None, after[::-1]


def _rendered(call: ModelCall) -> list[Message]:
    """Return the messages of a call, with the output schema in the system text."""
    conversation = list(call.messages[call.first_turn :])
    system = with_output_schema(call.system, call.output_schema)
    return [Message("system", system), *conversation] if system else conversation
