"""An environment to train in tests, on the tiny model, by name."""

from sparring import Environment
from tests.training import TALKATIVE, even, questions, talker


class Talk(Environment):
    """Talks."""

    measures = (even,)
    family = TALKATIVE

    def agent(self):
        return talker()

    def suite(self):
        return questions()
