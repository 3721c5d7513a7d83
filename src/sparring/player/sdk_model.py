"""The SDK's doors to the recorder: the model of a rollout, and the model of a trained agent.

An agent's `model_settings` apply to its turns; provider-specific ones (reasoning effort, storage,
metadata, headers) are ignored.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from agents import (
    AgentOutputSchemaBase,
    Handoff,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Tool,
    ToolExecutionConfig,
)
from agents.items import TResponseInputItem

from sparring.contracts.cases import Case
from sparring.contracts.errors import Untrainable, error_text
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import Finish, SampleKey, Sampling, TokenPolicy
from sparring.contracts.rollouts import Ending, RequestedCall, RolloutKey, RowStart
from sparring.contracts.specs import Limits
from sparring.player.conversation import Prompt, Reframe, TaggedTurns, prompt_of
from sparring.player.episode import Episode, EpisodeOver, Turn
from sparring.player.nested_runs import (
    ACTIVE_AGENT,
    RunModel,
    route_nested_runs,
)
from sparring.player.recorder import ModelCall, Recorder, SampledTurn
from sparring.player.tool_errors import ToolErrors
from sparring.player.tools import ToolStage, release_held_slot
from sparring.player.worlds import add_world_tools


@dataclass(slots=True, eq=False)
class _SdkRun:
    """The last turn of one run of the SDK with its frame, and the turn that a nested run was called
    from."""

    caller: SampledTurn | None = None
    last: SampledTurn | None = None
    frame: tuple[Any, ...] = ()


_NESTED_RUN: ContextVar[_SdkRun | None] = ContextVar("sparring_nested_run", default=None)


class EpisodeModel(RunModel):
    """The model of every agent in one rollout, including nested agents and handoff targets: the
    SDK's door to the rollout's recorder."""

    def __init__(
        self,
        episode: Episode,
        recorder: Recorder,
        stage: ToolStage,
        temperature: float,
        reframe: Reframe | None = None,
    ) -> None:
        super().__init__(ToolErrors(episode.note_failure))
        self._episode = episode
        self._recorder = recorder
        self._stage = stage
        self._temperature = temperature
        self._reframe = reframe
        self._tagged = TaggedTurns()
        self._outer_run = _SdkRun()

    def run_config(self, given: RunConfig | None) -> RunConfig:
        """Return a copy of `given`, or of the common run config, with this rollout's model, filter
        and error formatter.

        The config is copied because constructing one takes 2 ms, as much as the rest of a turn.
        """
        config = super().run_config(given or common_run_config())
        config.tracing_disabled = True
        config.tool_execution = common_run_config().tool_execution
        return config

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Release the slot of the tool that starts the nested run, and keep the replies of the
        nested run from becoming the rollout's answer."""
        release_held_slot()
        outer = _NESTED_RUN.get() or self._outer_run
        token = _NESTED_RUN.set(_SdkRun(caller=outer.last))
        try:
            with self._episode.nested_call():
                yield
        finally:
            _NESTED_RUN.reset(token)

    def refuse_escape(self, message: str) -> NoReturn:
        """End the rollout with an infrastructure error and raise EpisodeOver."""
        self._episode.end(Ending.INFRASTRUCTURE_ERROR, message)
        raise EpisodeOver

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: Any,
        **_: Any,
    ) -> ModelResponse:
        """Play one turn and record it in the episode."""
        episode = self._episode
        if episode.is_over:
            raise EpisodeOver
        active = ACTIVE_AGENT.get()
        episode.agent = active.agent
        turn = episode.begin_turn()
        add_world_tools(tools, active.context)
        given = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        if self._reframe is not None:
            given = self._reframe(active.agent, given)
        episode.offers_tools |= bool(tools)  # without handoffs
        self._stage.govern(tools)
        # The ending is recorded here: in a nested run, the SDK would turn an exception into a tool
        # result.
        try:
            episode.add_messages(given.new_messages)
            call, sampled = self._begin(turn, given, model_settings)
            usual = Sampling(self._temperature, episode.tokens_left())
            sampling = sampling_for(model_settings, usual)
            answer = await self._recorder.answer(sampled, turn.key, call, sampling)
        except EpisodeOver:
            raise
        except Exception as error:
            episode.end(Ending.INFRASTRUCTURE_ERROR, error_text(error))
            raise EpisodeOver from error
        reply = answer.reply
        calls = episode.add_reply(reply, turn)
        self._errors.remember(calls, given.tools)
        if answer.finish is Finish.LENGTH:
            episode.end(Ending.TOKEN_BUDGET, _cut_off_detail(model_settings, answer.tokens))
            raise EpisodeOver
        if reply.malformed and not episode.open_calls:
            episode.end(Ending.UNPARSABLE_CALL, reply.malformed)
        if model_settings.parallel_tool_calls is False:
            episode.refuse_calls(calls[1:], "Not done: one call at a time. Call it again.")
        return self._tagged.response(turn.number, sampled, given, answer, calls)

    def _begin(
        self, turn: Turn, given: Prompt, settings: ModelSettings
    ) -> tuple[ModelCall, SampledTurn]:
        """Begin the turn in the row of the turn that the prompt continues, else in a new row."""
        run, base = _NESTED_RUN.get() or self._outer_run, self._tagged.continued_by(given)
        before, row_start = run.caller, RowStart.NESTED if run.caller else RowStart.FIRST
        if run.last is not None:
            same_frame = RowStart.HISTORY if run.frame == given.frame else RowStart.FRAME
            before = run.last
            row_start = same_frame if run.last.agent == turn.agent else RowStart.HANDOFF
        choice = settings.tool_choice
        if self._recorder.token_policy is not None:
            choice = forced_tool(settings, given.tool_names)
        call = given.call(
            choice if isinstance(choice, str) else None,
            is_parallel=settings.parallel_tool_calls,
            continues=base,
        )
        agent = base.agent if base is not None else turn.agent
        sampled = self._recorder.begin(turn.number, agent, call, before, row_start)
        self._recorder.turns.append(sampled)
        run.last, run.frame = sampled, given.frame
        return call, sampled


@cache
def common_run_config() -> RunConfig:
    """Return the run config that all rollouts copy. The calls of one turn run one at a time."""
    return RunConfig(
        tracing_disabled=True,
        tool_not_found_behavior="return_error_to_model",
        tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
    )


def _cut_off_detail(settings: ModelSettings, sampled: int) -> str:
    if settings.max_tokens is not None and sampled >= settings.max_tokens:
        return f"a turn was cut off at the agent's max_tokens of {settings.max_tokens}"
    return "the answer was cut off"


class PolicyModel(RunModel):
    """An SDK model that samples from a policy: `Agent(model=PolicyModel(policy, sampling))`.

    It answers for every agent of the run and adds the tools of the run's context to each agent's
    own. As in training, a turn continues the exact tokens of the previous turn. An agent's model
    settings, such as its temperature, override `sampling`. The input of an outermost run begins
    with the items of `examples`, as in training; its handoffs see them, nested runs do not.
    """

    def __init__(
        self,
        policy: TokenPolicy,
        sampling: Sampling,
        seed: int | None = None,
        *,
        examples: Sequence[JsonObject] = (),
    ) -> None:
        super().__init__(ToolErrors(), examples)
        self._policy = policy
        self._sampling = sampling
        self._seed = secrets.randbits(31) if seed is None else seed
        self._turns = 0
        self._first_tag = secrets.randbits(
            48
        )  # random, so that items from another process do not match a turn
        unlimited = Limits(completion_tokens=sys.maxsize)
        self._recorder = Recorder(
            policy, Episode(RolloutKey(self._seed, 0, "", 0), Case("", ""), unlimited)
        )
        self._tagged = TaggedTurns()
        route_nested_runs()

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: Any,
        **_: Any,
    ) -> ModelResponse:
        """Sample one turn and return it as a ModelResponse."""
        active = ACTIVE_AGENT.get()
        add_world_tools(tools, active.context)
        prompt = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        call = prompt.call(
            forced_tool(model_settings, prompt.tool_names),
            is_parallel=model_settings.parallel_tool_calls,
            continues=self._tagged.continued_by(prompt),
        )
        self._turns += 1
        turn = self._recorder.begin(self._turns, active.agent, call)
        key = SampleKey(RolloutKey(self._seed, 0, "", turn.number), turn.number)
        sampling = sampling_for(model_settings, self._sampling)
        self._policy.join()
        try:
            answer = await self._recorder.answer(turn, key, call, sampling)
        finally:
            self._policy.leave()
        calls = [
            RequestedCall(f"call_{secrets.token_hex(8)}", call.tool, call.arguments)
            for call in answer.reply.calls
        ]
        self._errors.remember(calls, prompt.tools)
        tag = self._first_tag + turn.number
        return self._tagged.response(tag, turn, prompt, answer, calls)


def sampling_for(settings: ModelSettings, usual: Sampling) -> Sampling:
    """Return `usual` with the values that `settings` overrides. `max_tokens` can lower the limit
    of `usual`, but not raise it."""
    limit = usual.max_tokens
    return Sampling(
        _value_or(settings.temperature, usual.temperature),
        limit if settings.max_tokens is None else max(1, min(limit, settings.max_tokens)),
        usual.repetition_penalty,
        _value_or(settings.top_p, usual.top_p),
        _value_or(settings.frequency_penalty, usual.frequency_penalty),
        _value_or(settings.presence_penalty, usual.presence_penalty),
    )


def forced_tool(settings: ModelSettings, tool_names: Sequence[str]) -> str | None:
    """Return the tool that `tool_choice` forces on the next turn, "required" for any, or None.

    Raises Untrainable for any other choice, such as "none" or an unknown tool.
    """
    choice = settings.tool_choice
    if choice is None or choice == "auto" or not tool_names:
        return None
    if isinstance(choice, str) and (choice == "required" or choice in tool_names):
        return choice
    raise Untrainable(
        f"tool_choice={choice!r} cannot be forced on a model that samples tokens; use 'auto', "
        f"'required' or one of {', '.join(tool_names)}"
    )


def _value_or(value: float | None, usual: float) -> float:
    return usual if value is None else value
