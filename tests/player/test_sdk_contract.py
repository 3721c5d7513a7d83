"""What we rely on in the agents SDK. When one of these fails, the SDK has moved."""

import inspect

from agents import FunctionTool, Model, RunConfig, function_tool
from agents.run_config import ToolErrorFormatterArgs

from sparring.player.tools import formats_exceptions
from tests.rollouts import call, play_script


def test_the_sdk_calls_a_model_with_the_arguments_that_we_take():
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
    seams = {"kind", "tool_name", "call_id", *(["error"] if formats_exceptions() else [])}
    assert seams <= set(ToolErrorFormatterArgs.__annotations__)


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

    from sparring.player.trainability import _names_a_model

    inner = Agent(name="inner")
    assert _names_a_model(inner.as_tool("a", "b", run_config=RunConfig(model="gpt-5")))
    assert not _names_a_model(inner.as_tool("a", "b", run_config=RunConfig()))
    assert not _names_a_model(inner.as_tool("a", "b"))


def test_the_runner_behind_every_run_can_be_replaced():
    from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

    before = get_default_agent_runner()
    try:
        set_default_agent_runner(None)
        assert type(get_default_agent_runner()) is AgentRunner
    finally:
        set_default_agent_runner(before)
    for name in ("run", "run_sync", "run_streamed"):
        parameters = list(inspect.signature(getattr(AgentRunner, name)).parameters)
        assert parameters == ["self", "starting_agent", "input", "kwargs"]


def test_a_function_tool_words_its_failures_where_we_look():
    @function_tool(failure_error_function=lambda context, error: "own words")
    def work() -> str:
        """Work."""
        return ""

    assert work._failure_error_function is not None
    assert hasattr(work.on_invoke_tool, "__agents_bind_function_tool__")
