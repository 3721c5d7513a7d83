"""A chat with an agent that does not use the agents SDK. Each message is a separate rollout: the
agent does not see earlier messages."""

from __future__ import annotations

import secrets
from dataclasses import replace
from itertools import cycle

from sparring.contracts.cases import Case, examples_before, question_of
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Policy
from sparring.contracts.rollouts import Ending, Message, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.environments.task import Task
from sparring.player import Play, Player
from sparring.player.worlds import end_world

_EXAMPLES = 16


class ProgramConversation:
    """Plays the agent on each typed message, which replaces the question of a case."""

    def __init__(self, task: Task, policy: Policy, play: PlaySettings) -> None:
        self._player = Player(
            task.agent,
            policy,
            limits=play.limits(),
            temperature=play.temperature,
            context=task.context,
        )
        self._cases = cycle(task.suite.cases(task.suite.first_split(), _EXAMPLES))
        self._case: Case | None = None
        self._seed = secrets.randbits(31)
        self._messages = 0
        self.example = ""

    async def begin(self) -> int:
        """Take the next case, and return the number of its worked-example items."""
        self._case = next(self._cases)
        self.example = " ".join(question_of(self._case).split())
        return len(examples_before(self._case))

    async def say(self, text: str) -> list[Message]:
        """Play a message and return the messages after it: tool calls, tool results, answer."""
        assert self._case is not None
        before = examples_before(self._case)
        given = [*before, {"role": "user", "content": text}] if before else text
        key = RolloutKey(self._seed, 0, self._case.id, self._messages)
        self._messages += 1
        rollout = await self._player.play_one(Play(key, replace(self._case, input=given)))
        await end_world(rollout.world)
        if rollout.ending in (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL):
            raise InfrastructureError(rollout.detail)
        users = [place for place, each in enumerate(rollout.messages) if each.role == "user"]
        typed = [place for place in users if rollout.messages[place].content == text] or users
        shown = list(rollout.messages[typed[-1] + 1 :]) if typed else list(rollout.messages)
        answer = Message("assistant", rollout.answer)
        is_shown = bool(shown) and shown[-1].content == rollout.answer
        return shown if is_shown else [*shown, answer]

    async def tools(self) -> list[tuple[str, str]]:
        """Return an empty list: Sparring does not know the tools of an agent outside the SDK."""
        return []

    async def end(self) -> None:
        """Do nothing: `say` has already ended each world."""
