"""A rollout: what was said, which tools ran, how it ended, and the tokens behind it.

Token rows keep flat arrays instead of lists of objects: at 4,096 rollouts in flight of
32,000 tokens each, nine bytes a token are affordable and a Python object per token is not.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.verdicts import Judgement


def clean_text(text: str) -> str:
    """Lone surrogates, which JSON can spell and UTF-8 cannot, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Ending(StrEnum):
    """Why a rollout ended: one of a closed list.

    Anything but ANSWERED is the cause for which the rollout has no proper answer.
    """

    ANSWERED = "answered"
    UNPARSABLE_CALL = "unparsable_call"
    UNKNOWN_TOOL = "unknown_tool"
    TOOL_DEADLINE = "tool_deadline"
    TURN_LIMIT = "turn_limit"
    TOKEN_BUDGET = "token_budget"
    INVALID_OUTPUT = "invalid_output"
    INPUT_GUARDRAIL = "input_guardrail"
    OUTPUT_GUARDRAIL = "output_guardrail"
    TOOL_GUARDRAIL = "tool_guardrail"
    ROLLOUT_DEADLINE = "rollout_deadline"
    MACHINERY = "machinery"

    @property
    def is_models_doing(self) -> bool:
        """Whether the model can be held to it; if not, the rollout stays unscored."""
        return self not in _NOT_THE_MODELS_DOING


_NOT_THE_MODELS_DOING = frozenset(
    {Ending.INPUT_GUARDRAIL, Ending.ROLLOUT_DEADLINE, Ending.MACHINERY}
)


class CallFailure(StrEnum):
    """Why a tool call brought no result of its own."""

    UNKNOWN_TOOL = "unknown_tool"
    RAISED = "raised"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as the model asked for it; `arguments` is the JSON text."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the transcript. `thinking` is kept apart from what was answered."""

    role: str
    content: str
    agent: str = ""
    thinking: str = ""
    calls: tuple[RequestedCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that was carried out, with the result that the model saw."""

    id: str
    tool: str
    arguments: str
    result: str = ""
    failure: CallFailure | None = None
    agent: str = ""


class TokenKind(StrEnum):
    """Who wrote a token: the template and the user, the model, or a tool."""

    PROMPT = "prompt"
    SAMPLED = "sampled"
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of tokens of one kind."""

    kind: TokenKind
    length: int


@dataclass(frozen=True, slots=True)
class ResultBody:
    """Where the text of one tool result lies in a row, scaffolding left out."""

    tool: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One sequence to learn from.

    `ids` are the tokens as sampled and as shown to the model, never made again from text.
    `logprobs` holds one number per sampled token, in order.
    """

    agent: str
    ids: array[int]
    logprobs: array[float]
    spans: tuple[Span, ...]
    bodies: tuple[ResultBody, ...] = ()

    def mask(self) -> bytes:
        """One byte a token: 1 where the model sampled it."""
        return b"".join(
            (b"\x01" if span.kind is TokenKind.SAMPLED else b"\x00") * span.length
            for span in self.spans
        )

    @property
    def sampled(self) -> int:
        return len(self.logprobs)


@dataclass(frozen=True, slots=True)
class TokenUse:
    """How many tokens a rollout took."""

    prompt: int = 0
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class RolloutKey:
    """Which play this is: the same key and weights give the same tokens."""

    seed: int
    step: int
    case_id: str
    index: int

    @property
    def id(self) -> str:
        return f"{self.case_id}.{self.step}.{self.index}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One play of the agent on one case, as measures see it and as it is logged.

    `dropped` is why a rollout that was played for learning taught nothing.

    `world` and `output` exist only in the process that played: the context object the
    tools worked on, and the final output as the SDK parsed it.
    """

    key: RolloutKey
    case: Case
    ending: Ending
    answer: str
    messages: tuple[Message, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    rows: tuple[TokenRow, ...] = ()
    detail: str = ""
    turns: int = 0
    tokens: TokenUse = TokenUse()
    judgements: tuple[Judgement, ...] = ()
    reward: float | None = None
    advantage: float | None = None
    dropped: str = ""
    world: Any = field(default=None, compare=False, repr=False)
    output: Any = field(default=None, compare=False, repr=False)

    @property
    def id(self) -> str:
        return self.key.id

    @property
    def expected(self) -> Any:
        """What the case expects of the answer."""
        return self.case.expected

    @property
    def is_truncated(self) -> bool:
        return self.ending is Ending.TOKEN_BUDGET
