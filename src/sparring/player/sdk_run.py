"""One rollout of an SDK agent: the SDK's Runner with a policy as its model, and the user who
answers the agent's messages, if there is one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunErrorHandlerInput,
    RunErrorHandlers,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
from agents.mcp import MCPServer

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.json import JsonObject
from sparring.contracts.rollouts import Ending, Message, TokenRow
from sparring.player.conversation import preceded
from sparring.player.episode import Episode
from sparring.player.mcp_servers import rollout_servers
from sparring.player.nested_runs import outermost_runner
from sparring.player.recorder import Recorder
from sparring.player.sdk_model import EpisodeModel

UserFunction = Callable[[Case, Any, Sequence[Message]], "Awaitable[str | None] | str | None"]
# Arguments of `Runner.run` that Sparring does not accept, each with its replacement.
RUNNER_ARGUMENTS = {
    "run_config": "every rollout has its own run config; put guardrails and model_settings on "
    "the agent",
    "hooks": "put hooks on the agent: Agent(hooks=AgentHooks subclass)",
    "session": "each rollout starts without history; put earlier messages into the input of a case",
    "max_turns": "use the setting max_turns",
}


@dataclass(frozen=True, slots=True)
class SdkRun:
    """Runs the agent, and runs it again after each message of the user, if there is one.
    `examples` precede the case's input."""

    agent: Agent[Any]
    episode: Episode
    recorder: Recorder
    model: EpisodeModel
    user: UserFunction | None
    examples: Sequence[JsonObject] = ()

    def rows(self) -> list[TokenRow]:
        """Return the rows to train on."""
        return self.recorder.rows()

    async def run(self, world: Any) -> Any:
        """Run the agent and return its output. Tripped guardrails and the SDK's turn limit are
        recorded as endings, and None is returned."""
        episode, limits = self.episode, self.episode.limits

        def invalid_output(problem: RunErrorHandlerInput[Any]) -> Any:
            episode.end(Ending.INVALID_OUTPUT, str(problem.error))
            return {"final_output": episode.answer}

        handlers: RunErrorHandlers[Any] = {"invalid_final_output": invalid_output}
        items: Any = preceded(self.examples, episode.case.input)
        messages = 0
        try:
            async with rollout_servers(world) as servers:
                agent = _copy_for_rollout(self.agent, servers)
                while True:
                    with outermost_runner(self.model) as runner:
                        result = await runner.run(
                            agent,
                            items,
                            context=world,
                            max_turns=limits.max_turns,
                            run_config=self.model.run_config(None),
                            error_handlers=handlers,
                        )
                    output = result.final_output
                    if isinstance(output, str):
                        episode.answer = output  # under stop_on_first_tool, a tool's result
                    message = await self._user_message(world)
                    if message is None:
                        return output
                    if messages == limits.user_messages:
                        limit = f"the conversation did not end within {messages} user messages"
                        episode.end(Ending.TURN_LIMIT, limit)
                        return output
                    messages += 1
                    agent = result.last_agent
                    items = [*result.to_input_list(), {"role": "user", "content": message}]
        except MaxTurnsExceeded:
            episode.end(Ending.TURN_LIMIT, f"no answer within {limits.max_turns} turns")
        except InputGuardrailTripwireTriggered as trip:
            episode.end(Ending.INPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except OutputGuardrailTripwireTriggered as trip:
            episode.end(Ending.OUTPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered) as trip:
            episode.end(Ending.TOOL_GUARDRAIL, trip.guardrail.get_name())
        return None

    async def _user_message(self, world: Any) -> str | None:
        """Return the user's next message; None if the conversation is over.

        A synchronous function runs in a thread. Raises InfrastructureError if the function takes
        longer than a tool may or returns anything but text or None: neither is the model's fault.
        """
        user, episode, seconds = self.user, self.episode, self.episode.limits.tool_timeout
        if user is None or episode.is_over:
            return None
        arguments = (episode.case, world, episode.messages)
        try:
            async with episode.deadlines.within(seconds) as deadline:
                if inspect.iscoroutinefunction(user):
                    message = await user(*arguments)
                else:
                    message = await asyncio.to_thread(user, *arguments)
                    if inspect.isawaitable(message):
                        message = await message
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise InfrastructureError(f"user() did not answer within {seconds:g} s") from error
        if message is not None and not isinstance(message, str):
            raise InfrastructureError(
                f"user() returned a {type(message).__name__}; return the user's message, or None "
                "to end the conversation"
            )
        return message


def _copy_for_rollout(agent: Agent[Any], servers: list[MCPServer]) -> Agent[Any]:
    """Copy the agent for one rollout and add the rollout's MCP servers.

    At every turn, the SDK checks the tools of all concurrent runs of an agent object. If rollouts
    shared the object, a turn would take 1.5 ms with 16 rollouts in flight and 6.7 ms with 1,024.
    """
    return agent.clone(tools=list(agent.tools), mcp_servers=[*agent.mcp_servers, *servers])
