"""Clients of OpenAI-compatible servers, for policies and measures. A leaf.

Every failure is an EndpointError that names the server's address, its answer and the next step.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from sparring.contracts.errors import EndpointError, InvalidInput
from sparring.contracts.specs import EndpointSpec
from sparring.secrets import read_key

if TYPE_CHECKING:
    from openai import APIError, APIStatusError, AsyncOpenAI, BadRequestError
    from openai.types.chat import ChatCompletion
    from pydantic import SecretStr

_LOG = logging.getLogger(__name__)
_RENAMED = {"max_tokens": "max_completion_tokens"}
# If the server rejects one of these arguments, it is left out, and the model uses its default.
_DROPPABLE = frozenset(
    {
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "parallel_tool_calls",
    }
)
# Semaphores that limit concurrent requests, by the server's address and the limit.
_Turns = dict[tuple[str, int], asyncio.Semaphore]
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()
_UNSUPPORTED = re.compile(r"unsupported|not support|only the default|unknown|unrecognized", re.I)
_TOO_FEW_TOKENS = re.compile(r"max_(completion_)?tokens|output limit", re.I)
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_PROBE_TOKENS = 16
_PROBE_SECONDS = 30.0
_QUOTED = 160  # characters of an answer


def turn_at(base_url: str, at_once: int) -> asyncio.Semaphore:
    """Return the semaphore that limits requests to a server to `at_once`.

    Callers in the same event loop with the same address and limit share it.
    """
    turns = _TURNS.setdefault(asyncio.get_running_loop(), {})
    return turns.setdefault((base_url, at_once), asyncio.Semaphore(at_once))


def refuse_missing_key(endpoint: EndpointSpec) -> None:
    """Raise InvalidInput if the variable of the server's key is not set."""
    variable = endpoint.key_variable
    if variable is not None and read_key(variable) is None:
        raise InvalidInput(f"{endpoint.base_url} requires a key: {how_to_set(variable)}")


def how_to_set(variable: str) -> str:
    """Return how the key in an environment variable is set."""
    return f"set {variable}, or set {variable}_FILE to the path of a file that holds the key"


class EndpointClient:
    """Clients of one endpoint, one per event loop.

    Connections belong to the event loop that opened them, and each evaluation in a notebook runs in
    a new loop. A client retries 429, 5xx and broken connections, and honours the server's
    `Retry-After`. The key is read when a client is created.
    """

    def __init__(self, endpoint: EndpointSpec, *, retries: int = 5, seconds: float = 120.0) -> None:
        self._endpoint = endpoint
        self._renamed: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._retries = retries
        self._seconds = seconds
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = (
            WeakKeyDictionary()
        )

    def get(self) -> AsyncOpenAI:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = self._connect()
        return self._by_loop[loop]

    async def chat(self, **request: Any) -> ChatCompletion:
        """Request one chat completion, with at least one choice.

        If the server rejects an argument, the request is sent again with the argument renamed or
        left out. All later requests are changed in the same way. Raises EndpointError if there is
        no completion.
        """
        from openai import APIError, BadRequestError
        from openai.types.chat import ChatCompletion

        while True:
            sent = self._adapt(request)
            try:
                answer: object = await self.get().chat.completions.create(**sent)
            except BadRequestError as error:
                if not self._can_adapt_to(error, sent):
                    raise self._failure(error) from error
                continue
            except APIError as error:
                raise self._failure(error) from error
            except ValueError as error:  # not JSON, whatever the answer's type says
                raise self._no_completion(str(error)) from error
            if not isinstance(answer, ChatCompletion):
                raise self._no_completion(repr(answer))
            if not answer.choices:
                extra = answer.model_extra or {}
                raise self._no_completion(f"an answer without choices {extra.get('error', '')}")
            return answer

    async def ask_once(self) -> None:
        """Request a few tokens, once more if the server is busy. Raises EndpointError if it cannot
        answer: its address, the key or the model's name is wrong, or it is down."""
        from openai import BadRequestError

        probe = EndpointClient(self._endpoint, retries=1, seconds=_PROBE_SECONDS)
        try:
            await probe.chat(
                model=self._endpoint.model,
                messages=[{"role": "user", "content": "Say yes."}],
                max_tokens=_PROBE_TOKENS,
            )
        except EndpointError as error:
            # A model that thinks may need more tokens; address, key and name are right.
            is_cut = isinstance(error.__cause__, BadRequestError)
            if not (is_cut and _TOO_FEW_TOKENS.search(str(error))):
                raise

    def _key(self) -> SecretStr | None:
        return read_key(self._endpoint.key_variable)

    def _failure(self, error: APIError) -> EndpointError:
        """Return the error that says what the server answered, and the next step."""
        from openai import APIStatusError, APITimeoutError

        url, model = self._endpoint.base_url, self._endpoint.model
        if isinstance(error, APITimeoutError):
            return EndpointError(
                f"{url} did not answer within {self._seconds:g} s; check that the server is not "
                "overloaded, or lower --max-concurrency"
            )
        if not isinstance(error, APIStatusError):
            cause = error.__cause__ or error.message
            return EndpointError(
                f"{url} cannot be reached ({str(cause).rstrip('.')}); check the address, and that "
                "the server is running"
            )
        status = error.status_code
        match status:
            case 401 | 403:
                advice = self._key_advice()
            case 404:
                advice = f"check the model's name, {model}{self._path_advice()}"
            case 429:
                advice = "wait, raise the server's limit, or lower --max-concurrency"
            case _ if status >= _SERVER_ERROR:
                advice = "check the server's log, or try again later"
            case _:
                advice = f"check the model's name, {model}, and its settings"
        may_pass = status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR
        message = f"{url} answered {status}{_quoted(error)}; {advice}"
        return EndpointError(message, may_pass=may_pass)

    def _no_completion(self, answer: str) -> EndpointError:
        return EndpointError(
            f"{self._endpoint.base_url} answered 200, but not with a chat completion: "
            f"{_short(answer)}; check the address{self._path_advice()}"
        )

    def _path_advice(self) -> str:
        url = self._endpoint.base_url.rstrip("/")
        if urlsplit(url).path:
            return f" and that {url}/chat/completions is the path of the server's API"
        return f" and the path: most servers answer at {url}/v1"

    def _key_advice(self) -> str:
        variable = self._endpoint.key_variable
        if variable is None:
            return (
                "it requires a key: name the environment variable that holds it with "
                "--key-variable, or with key_variable in Python"
            )
        if self._key() is None:
            return f"it requires a key: {how_to_set(variable)}"
        return f"check that the key in {variable} is valid for this model"

    def _adapt(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            self._renamed.get(name, name): value
            for name, value in request.items()
            if name not in self._dropped
        }

    def _can_adapt_to(self, error: BadRequestError, sent: dict[str, Any]) -> bool:
        """Record that the argument named in the error must be renamed or dropped. Return False if
        the error names no such argument."""
        message = str(error)
        for old, new in _RENAMED.items():
            if old in sent and new in message:
                self._renamed[old] = new
                return True
        if not _UNSUPPORTED.search(message):
            return False
        for name in sorted(_DROPPABLE & set(sent)):
            if error.param == name or re.search(rf"['\"`]{name}['\"`]", message):
                self._dropped.add(name)
                _LOG.warning(
                    f"{self._endpoint.model} does not accept {name}={sent[name]!r}; the model's "
                    "default is used"
                )
                return True
        return False

    def _connect(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        key = self._key()
        return AsyncOpenAI(
            api_key=key.get_secret_value() if key else "none",
            base_url=self._endpoint.base_url,
            max_retries=self._retries,
            timeout=self._seconds,
        )


def _quoted(error: APIStatusError) -> str:
    """Return the server's own message, in brackets; empty if there is none."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    return f" ({_short(str(message))})" if message else ""


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
