"""Environments whose verdict is known beforehand. What is right is a coin that only a model can
throw: whether it wrote an even number of tokens. Null players write none."""

import random
from dataclasses import replace

from agents import Agent, WebSearchTool, function_tool

from sparring import Environment, Suite, failed, measure, passed
from sparring.contracts.policies import Reply
from sparring.contracts.verdicts import cannot_tell, scored
from sparring.policies.tool_calls import TaggedJson
from tests.training import TALKATIVE


def _sampled_tokens(rollout):
    return rollout.tokens.sampled


@measure
def coin(rollout):
    return (
        passed("even")
        if _sampled_tokens(rollout) and _sampled_tokens(rollout) % 2 == 0
        else failed("odd, or none")
    )


@measure
def half(rollout):
    return scored(0.5, "neither here nor there")


@measure
def anything(rollout):
    return passed("anything goes")


@measure
def talks(rollout):
    return passed("it says something") if _sampled_tokens(rollout) else failed("nothing")


@measure
def knows(rollout):
    return passed("right") if rollout.answer == rollout.expected else failed("wrong")


@measure
def dice(rollout):
    return passed("heads") if random.random() < 0.5 else failed("tails")


@measure
def short(rollout):
    return passed("short") if len(rollout.answer) < 6 else failed(f"{len(rollout.answer)} letters")


@measure
def broken(rollout):
    raise RuntimeError("the judge is out")


@measure
def silent(rollout):
    return cannot_tell("who knows") if _sampled_tokens(rollout) else failed("no tokens")


@function_tool
def look() -> str:
    """Look."""
    return "nothing"


class Known(Environment):
    """A talker."""

    family = TALKATIVE
    measures = (coin,)
    tools = ()

    def agent(self):
        return Agent(name="talker", instructions="Talk.", tools=list(self.tools))

    def suite(self):
        return Suite.from_records(
            [{"input": f"question {n}", "expected": f"answer {n}"} for n in range(300)]
        )


class Healthy(Known):
    pass


class Constant(Known):
    measures = (half,)


class PassesAnything(Known):
    measures = (anything,)


class TooEasy(Known):
    measures = (talks,)


class TooHard(Known):
    measures = (knows,)


class Flaky(Known):
    measures = (dice,)


class Exploitable(Known):
    measures = (short,)


class BrokenJudge(Known):
    measures = (broken,)


class Undecided(Known):
    measures = (silent,)


class Truncated(Known):
    """Nothing ends a turn, so that everything is cut off."""

    family = replace(TALKATIVE, also_stops=())


class Stammered(TaggedJson):
    """Takes all but whole sentences and whole calls for calls that were begun."""

    def parse(self, text, tools=()):
        if "<tool_call>" in text or text.endswith("degrees."):
            return super().parse(text)
        return Reply(content=text, malformed="a call was begun and never ended")


class Unparsable(Known):
    family = replace(TALKATIVE, tool_calls=Stammered())
    tools = (look,)


class Untrainable(Known):
    tools = (WebSearchTool(),)


class Halfway(Known):
    """Rewarded half for a coin and half for nothing: still to be learned from."""

    measures = (coin, anything)


class NoWorld(Known):
    def world(self, case):
        raise OSError("the world is not there")


# ---------------------------------------------------------------------- measure by measure
# Each DEAD measure never passes, whatever the tiny model says; each of MOVING does now and then.


@measure
def called_a_tool(rollout):
    return passed("called") if rollout.tool_calls else failed("answered without a tool")


@measure
def says_the_word(rollout):
    return passed("contains it") if "quixotic" in rollout.answer else failed("quixotic is missing")


@measure
def is_an_essay(rollout):
    long = len(rollout.answer) > 20_000
    return passed("an essay") if long else failed(f"{len(rollout.answer)} letters")


@measure
def scores_nothing(rollout):
    return scored(1.0 if rollout.answer == "\0" else 0.0, "not that")


@measure
def thirds(rollout):
    even = _sampled_tokens(rollout) and _sampled_tokens(rollout) % 3 == 0
    return passed("a third") if even else failed("not a third")


@measure
def halves(rollout):
    count = _sampled_tokens(rollout)
    return scored(1.0 if count and count % 5 < 2 else 0.0, f"{count} tokens")


@measure
def grades(rollout):
    count = _sampled_tokens(rollout)
    return scored(count % 4 / 3 if count else 0.0, f"{count} tokens")


DEAD = (called_a_tool, says_the_word, is_an_essay, scores_nothing, knows)
MOVING = (coin, thirds, halves, grades)


class Partly(Known):
    """`number` names a pair: a measure that never passes, and one that moves."""

    tools = (look,)

    class Config(Environment.Config):
        number: int = 0

    @property
    def measures(self):
        dead, moving = divmod(self.config.number, len(MOVING))
        return (DEAD[dead], MOVING[moving])


class Moving(Partly):
    """`number` names a pair of measures that both move, or one of them alone."""

    @property
    def measures(self):
        pairs = [(a, b) for a in MOVING for b in MOVING if a.name < b.name]
        return [*pairs, *((each,) for each in MOVING)][self.config.number]
