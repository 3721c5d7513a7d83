"""Applies an agent's `model_settings` to the turns of a policy.

Provider-specific settings (reasoning effort, storage, metadata, headers) are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agents import ModelSettings

from sparring.contracts.errors import Untrainable
from sparring.contracts.policies import Sampling

# Arguments of `Runner.run` that Sparring does not accept, each with its replacement.
RUNNER_ARGUMENTS = {
    "run_config": "every rollout has its own run config; put guardrails and model_settings on "
    "the agent",
    "hooks": "put hooks on the agent: Agent(hooks=AgentHooks subclass)",
    "session": "each rollout starts without history; put earlier messages into the input of a case",
    "max_turns": "use tool_rounds, which counts rounds of tool calls",
}


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


def untrainable_settings(settings: ModelSettings, temperature: float) -> Iterator[str]:
    """Yield a message for each setting that training cannot apply. Training samples with the run's
    temperature, and without top_p and penalties."""
    if settings.temperature is not None and settings.temperature != temperature:
        yield (
            f"its temperature is {settings.temperature:g} and the run's is {temperature:g}; use "
            f"--set temperature={settings.temperature:g} for the run, or remove it from the agent"
        )
    for name, neutral in (("top_p", 1.0), ("frequency_penalty", 0.0), ("presence_penalty", 0.0)):
        value = getattr(settings, name)
        if value is not None and value != neutral:
            yield f"{name}={value:g} changes the sampling that training assumes; remove it"


def _value_or(value: float | None, usual: float) -> float:
    return usual if value is None else value
