"""A game over several turns: find a hidden number by guessing, with a hint after each guess.

The world keeps the number and counts the guesses; the agent sees neither.
"""

from agents import Agent
from pydantic import Field

from sparring import (
    Environment,
    Suite,
    call,
    failed,
    measure,
    passed,
    scored,
    tool,
    worked_example,
)


class Game:
    """One hidden number. Only `guess` is a tool; the rest is out of the agent's reach."""

    def __init__(self, hidden: int, most: int) -> None:
        self.hidden, self.most = hidden, most
        self.guesses: list[int] = []

    @property
    def is_won(self) -> bool:
        return self.hidden in self.guesses

    @tool
    def guess(self, number: int) -> str:
        """Guess the number."""
        if self.is_won:
            return "you have found it already"
        if len(self.guesses) >= self.most:
            return "no guesses are left"
        self.guesses.append(number)
        if number == self.hidden:
            return "yes"
        return "higher" if number < self.hidden else "lower"


@measure
def found(rollout):
    """The number was guessed."""
    game = rollout.world
    if game.is_won:
        return passed(f"found {game.hidden} with {len(game.guesses)} guesses")
    return failed(f"did not find {game.hidden}: guessed {game.guesses or 'nothing'}")


@measure(threshold=1.0)
def heeded_hints(rollout):
    """Share of guesses that the hints so far had not ruled out."""
    low, high, sensible = 1, rollout.case.fields["largest"], 0
    game = rollout.world
    if not game.guesses:
        return failed("made no guess")
    for number in game.guesses:
        sensible += low <= number <= high
        if number < game.hidden:
            low = max(low, number + 1)
        elif number > game.hidden:
            high = min(high, number - 1)
    share = sensible / len(game.guesses)
    return scored(share, f"{sensible} of {len(game.guesses)} guesses were still possible")


def worked_game(hidden: int, guesses: tuple[int, ...]):
    """One game played well. A small model copies what it sees better than what it is told."""
    game = Game(hidden, len(guesses))
    return worked_example(
        "Find the number from 1 to 8.",
        *(call(game.guess, number=number) for number in guesses),
        answer=f"It is {hidden}.",
    )


EXAMPLES = [worked_game(6, (4, 6)), worked_game(3, (4, 2, 3))]
QUESTIONS = [
    question.replace("WHO", who)
    for who in ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gia", "Hal", "Ines", "Jon")
    for question in (
        "Find WHO's number from 1 to {}.",
        "WHO thinks of a number from 1 to {}. Which is it?",
    )
]


class NumberGame(Environment):
    """Guess a hidden number with hints, in as few turns as a careful player needs."""

    name = "number_game"
    measures = (found, heeded_hints)
    examples = EXAMPLES
    weights = {"heeded_hints": 0.5}
    settings = {"max_turns": 5, "max_completion_length": 256}

    class Config(Environment.Config):
        largest: int = Field(8, ge=4, le=100, description="numbers go from 1 to this")
        guesses: int = Field(4, ge=1, le=20, description="guesses that a game allows")

    def agent(self) -> Agent:
        return Agent(name="guesser", instructions="Play by calling guess.", model="smollm2")

    def suite(self) -> Suite:
        numbers = range(1, self.config.largest + 1)
        rounds = min(len(QUESTIONS), max(1, 160 // self.config.largest))
        return Suite.from_records(
            [
                {"id": f"{hidden}-{turn}", "hidden": hidden, "largest": self.config.largest,
                 "question": QUESTIONS[turn].format(self.config.largest)}
                for turn in range(rounds)
                for hidden in numbers
            ],
            id="id",
            input="question",
            expected="hidden",
            shares={"training": 0.6, "validation": 0.2, "held-out": 0.2},
        )  # fmt: skip

    def world(self, case):
        return Game(case.expected, self.config.guesses)
