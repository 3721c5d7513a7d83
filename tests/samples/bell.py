"""The environment that the sample runs played: ring a bell, then answer "done"."""

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed


@function_tool
def ring() -> str:
    """Ring the bell."""
    return "come in"


@measure
def got_in(rollout):
    """The bell was rung once, and the answer is "done"."""
    if [call.tool for call in rollout.tool_calls] != ["ring"]:
        return failed("rang not once")
    return passed() if rollout.answer.strip() == "done" else failed("the answer is not done")


class Bell(Environment):
    """Rings a bell."""

    measures = (got_in,)

    def agent(self):
        return Agent(name="porter", instructions="Let them in.", tools=[ring])

    def suite(self):
        return Suite.from_records([{"input": f"guest {number}"} for number in range(60)])
