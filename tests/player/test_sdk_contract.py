"""What we rely on in the agents SDK. When one of these fails, the SDK has moved."""

import inspect

from agents import FunctionTool, Model, RunConfig, function_tool
from agents.run_config import ToolErrorFormatterArgs

from tests.rollouts import call, play_script


def test_a_model_is_asked_with_these_arguments():
    expected = [
        "self",
        "system_instructions",
        "input",
        "model_settings",
        "tools",
        "output_schema",
        "handoffs",
        "tracing",
        "previous_response_id",
        "conversation_id",
        "prompt",
    ]
    assert list(inspect.signature(Model.get_response).parameters) == expected


def test_the_run_config_has_the_seams_we_use():
    config = RunConfig()
    for seam in (
        "model",
        "call_model_input_filter",
        "tool_error_formatter",
        "tool_not_found_behavior",
        "tool_execution",
    ):
        assert hasattr(config, seam), seam
    assert {"kind", "tool_name", "call_id", "error"} <= set(ToolErrorFormatterArgs.__annotations__)


def test_tools_put_into_the_models_list_are_the_tools_that_are_called(codecs):
    """Governing tools works only as long as the SDK dispatches from the list it showed us."""
    from agents import Agent

    @function_tool
    def work() -> str:
        """Work."""
        return "done"

    assert isinstance(work, FunctionTool)
    played = play_script(Agent(name="a", tools=[work]), [call("work"), "ok"], codecs["qwen3"])
    assert played.tool_calls[0].result == "done"  # noted by the governed copy


def test_an_agent_as_tool_keeps_its_run_config_where_we_look_for_it():
    from agents import Agent

    from sparring.player.trainability import _has_own_run_config

    inner = Agent(name="inner")
    assert _has_own_run_config(inner.as_tool("a", "b", run_config=RunConfig()))
    assert not _has_own_run_config(inner.as_tool("a", "b"))
