"""One rollout of an SDK agent: the SDK's Runner with a policy as its model."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunErrorHandlerInput,
    RunErrorHandlers,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
from agents.mcp import MCPServer

from sparring.contracts.rollouts import Ending, TokenRow
from sparring.player.episode import Episode
from sparring.player.mcp_servers import rollout_servers
from sparring.player.recorder import Recorder
from sparring.player.sdk_model import EpisodeModel
from sparring.player.users import UserFunction, user_message


class SdkRun:
    """Runs the agent, and runs it again after each message of the user, if there is one."""

    def __init__(
        self,
        agent: Agent[Any],
        episode: Episode,
        recorder: Recorder,
        model: EpisodeModel,
        user: UserFunction | None,
    ) -> None:
        self._agent = agent
        self._episode = episode
        self._recorder = recorder
        self._model = model
        self._user = user

    def rows(self) -> list[TokenRow]:
        """Return the rows to train on."""
        return self._recorder.rows()

    async def run(self, world: Any) -> Any:
        """Run the agent and return its output. Tripped guardrails and the SDK's turn limit are
        recorded as endings, and None is returned."""
        episode, limits = self._episode, self._episode.limits

        def invalid_output(problem: RunErrorHandlerInput[Any]) -> Any:
            episode.end(Ending.INVALID_OUTPUT, str(problem.error))
            return {"final_output": episode.answer}

        handlers: RunErrorHandlers[Any] = {"invalid_final_output": invalid_output}
        items: Any = episode.case.input
        messages = 0
        try:
            async with rollout_servers(world) as servers:
                agent = _copy_for_rollout(self._agent, servers)
                while True:
                    result = await Runner.run(
                        agent,
                        items,
                        context=world,
                        max_turns=limits.turns,
                        run_config=self._model.run_config(None),
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
            episode.end(Ending.TURN_LIMIT, f"no answer within {limits.turns} turns")
        except InputGuardrailTripwireTriggered as trip:
            episode.end(Ending.INPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except OutputGuardrailTripwireTriggered as trip:
            episode.end(Ending.OUTPUT_GUARDRAIL, trip.guardrail_result.guardrail.get_name())
        except (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered) as trip:
            episode.end(Ending.TOOL_GUARDRAIL, trip.guardrail.get_name())
        return None

    async def _user_message(self, world: Any) -> str | None:
        """Return the user's next message; None if the conversation is over."""
        episode = self._episode
        if self._user is None or episode.is_over:
            return None
        return await user_message(
            self._user,
            episode.case,
            world,
            episode.messages,
            deadlines=episode.deadlines,
            seconds=episode.limits.tool_seconds,
        )


def _copy_for_rollout(agent: Agent[Any], servers: list[MCPServer]) -> Agent[Any]:
    """Copy the agent for one rollout and add the rollout's MCP servers.

    At every turn, the SDK checks the tools of all concurrent runs of an agent object. If rollouts
    shared the object, a turn would take 1.5 ms with 16 rollouts in flight and 6.7 ms with 1,024.
    """
    return agent.clone(tools=list(agent.tools), mcp_servers=[*agent.mcp_servers, *servers])
