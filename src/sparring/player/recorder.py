"""Answers the model calls of one rollout from its policy, and records their tokens."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import (
    ChatPolicy,
    ChatRequest,
    Finish,
    Policy,
    Reply,
    SampleKey,
    SampleRequest,
    Sampling,
    TokenPolicy,
)
from sparring.contracts.rollouts import RowStart, TokenRow
from sparring.player.episode import Episode
from sparring.player.model_call import ModelCall
from sparring.player.turns import FindTurn, PromptWriter, SampledTurn, rows_of


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
        self.token_policy: TokenPolicy | None = None
        self._chat_policy: ChatPolicy | None = None
        # `isinstance` with a protocol takes 80 µs, too long for every call.
        if isinstance(policy, TokenPolicy):
            self.token_policy = policy
            self._writer = PromptWriter(policy.codec, find, episode.tool_of)
        else:
            self._chat_policy = policy

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
            assert self._chat_policy is not None
            chat = await self._chat_policy.reply(
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
