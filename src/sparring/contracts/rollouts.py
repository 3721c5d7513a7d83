"""Rollouts: messages, tool calls, endings and tokens.

Token rows are flat arrays of at most 12 bytes per token. 4,096 rollouts of 32,000 tokens in flight
fit into memory; with a Python object per token, they would not.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.verdicts import Judgement


def clean_text(text: str) -> str:
    """Replace lone surrogates, which JSON can contain and UTF-8 cannot, with question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Ending(StrEnum):
    """Why a rollout ended. Every value except ANSWERED means that there is no valid answer."""

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
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    NO_MODEL_CALL = "no_model_call"

    @property
    def is_judged(self) -> bool:
        """Whether measures judge the rollout. False for failures that the model did not cause."""
        return self not in _NOT_JUDGED


_NOT_JUDGED = frozenset(
    {
        Ending.INPUT_GUARDRAIL,
        Ending.ROLLOUT_DEADLINE,
        Ending.INFRASTRUCTURE_ERROR,
        Ending.NO_MODEL_CALL,
    }
)


class CallFailure(StrEnum):
    """Why a tool call failed."""

    UNKNOWN_TOOL = "unknown_tool"
    RAISED = "raised"
    DEADLINE = "deadline"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as the model requested it; `arguments` is JSON text."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the transcript. `content` does not include `thinking`."""

    role: str
    content: str
    agent: str = ""
    thinking: str = ""
    calls: tuple[RequestedCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model, with the result or error text that the model saw."""

    id: str
    tool: str
    arguments: str
    result: str = ""
    failure: CallFailure | None = None
    agent: str = ""


class TokenKind(StrEnum):
    """The origin of a token: the row's first prompt, the model, or text that was added later."""

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
    """The range of a row that holds the text of one tool result, without the template around it."""

    tool: str
    start: int
    stop: int


class RowStart(StrEnum):
    """Why a new row begins instead of an earlier row being continued."""

    FIRST = "first"
    HANDOFF = "handoff"
    NESTED = "nested"
    FRAME = "frame"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token sequence of a rollout. Each agent has a row, and a new row begins at each turn that
    does more than append to an earlier row.

    `ids` are the tokens as sampled and as shown to the model, never re-encoded from text.
    `logprobs` holds one number per sampled token, in order. `parent` is the index in
    `Rollout.rows` of the row that this one follows or, if nested, was called from. `versions` are
    the weight versions of the sampled tokens, as pairs of (version, number of tokens). `gaps` holds
    the trainer's log-probability minus the sampler's for each sampled token.
    `versions` and `gaps` are empty if not known. A discarded row holds replies that the agent never
    used; it is logged, but not trained on.
    """

    agent: str
    ids: array[int]
    logprobs: array[float]
    spans: tuple[Span, ...]
    bodies: tuple[ResultBody, ...] = ()
    start: RowStart = RowStart.FIRST
    parent: int | None = None
    versions: tuple[tuple[int, int], ...] = ()
    gaps: array[float] = field(default_factory=lambda: array("f"))
    is_discarded: bool = False

    def mask(self) -> bytes:
        """Return one byte per token: 1 where the model sampled it."""
        return b"".join(
            (b"\x01" if span.kind is TokenKind.SAMPLED else b"\x00") * span.length
            for span in self.spans
        )

    @property
    def sampled(self) -> int:
        """Number of sampled tokens."""
        return len(self.logprobs)


@dataclass(frozen=True, slots=True)
class TokenUse:
    """The numbers of prompt and sampled tokens of a rollout, summed over its turns."""

    prompt: int = 0
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class RolloutKey:
    """Identifies and seeds a rollout."""

    seed: int
    step: int
    case_id: str
    index: int

    @property
    def id(self) -> str:
        """`CASE.STEP.INDEX`."""
        return f"{self.case_id}.{self.step}.{self.index}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One play of the agent on one case: the input of measures and the content of the log.

    `dropped` is the reason why a training rollout carried no gradient. `world`, the object that the
    tools work on, and `output`, the final output as the SDK parsed it or the agent's program
    returned it, exist only in the process that played the rollout.
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
        """The key's id."""
        return self.key.id

    @property
    def expected(self) -> Any:
        """The expected outcome of the case."""
        return self.case.expected

    @property
    def is_truncated(self) -> bool:
        """Whether the token budget cut the rollout off."""
        return self.ending is Ending.TOKEN_BUDGET

    @property
    def unscored_because(self) -> str:
        """Why the rollout has no reward: the reason of the first measure that cannot tell, or else
        its ending."""
        reasons = [each.verdict.reason for each in self.judgements if each.verdict.score is None]
        return reasons[0] if reasons else f"{self.ending.value}: {self.detail}"
