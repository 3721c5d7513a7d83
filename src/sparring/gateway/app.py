"""The gateway as an ASGI application: routes each request to its wire format and session."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import Receive, Scope, Send

from sparring.gateway.anthropic_messages import AnthropicMessages
from sparring.gateway.capture import Exchange
from sparring.gateway.chat_completions import ChatCompletions
from sparring.gateway.http import Disconnected, Request, Response
from sparring.gateway.responses import Responses
from sparring.gateway.sessions import Mailbox, OpenSession, Sessions
from sparring.gateway.wire import ModelReply, Refused, WireCall, WireFormat
from sparring.player.recorder import ModelCall

_BLOCKED_SECONDS = 20.0
_BLOCKED = (
    "the event loop that plays rollouts is blocked: `async def play` calls a synchronous client. "
    "Use an async client, or write `def play`, which runs in a thread"
)
_EVENT_STREAM = b"text/event-stream; charset=utf-8"
_LOG = logging.getLogger(__name__)


class GatewayApp:
    """Answers the requests of all open sessions. It runs on the server's event loop; each call is
    answered on the loop that plays its rollout."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._chat, self._anthropic = ChatCompletions(), AnthropicMessages()
        self._formats: dict[str, WireFormat] = {
            "chat/completions": self._chat,
            "responses": Responses(),
            "messages": self._anthropic,
            "messages/count_tokens": self._anthropic,
        }
        self._mailbox: Mailbox | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; errors have the shape of the request's wire format."""
        request = Request(scope, receive)
        format = self._formats.get(request.path, self._chat)
        try:
            response = await self._respond(request, format)
        except Refused as refused:
            response = Response.of_json(format.error(refused), refused.status)
        except Disconnected:
            response = Response(400)
        except Exception as error:
            _LOG.exception("the gateway failed on %s %s", request.method, request.path)
            failed = Refused(500, f"the gateway failed: {type(error).__name__}: {error}")
            response = Response.of_json(format.error(failed), failed.status)
        await response.send(send)

    async def _respond(self, request: Request, format: WireFormat) -> Response:
        if request.method == "GET" and request.path == "models":
            return self._list_models(self._session(request))
        if request.method != "POST" or request.path not in self._formats:
            place = f"{request.method} {request.full_path}"
            raise Refused(404, f"there is no endpoint {place}; see docs/gateway.md")
        session = self._session(request)
        sent = format.read(await request.json(), session)
        if request.path == "messages/count_tokens":
            count = await asyncio.to_thread(session.capture.count_tokens, sent.call)
            return Response.of_json({"input_tokens": count})
        sent = _with_retries(sent, request)
        exchange, reply = await self._ask(session, sent.call)
        if request.is_disconnected():
            raise Disconnected
        exchange.is_delivered = True
        if sent.is_streamed:
            return Response(200, b"".join(format.events(sent, reply, session)), _EVENT_STREAM)
        return Response.of_json(format.reply(sent, reply, session))

    def _session(self, request: Request) -> OpenSession:
        return self._sessions.find(request.path_key, request.header_key)

    @staticmethod
    def _list_models(session: OpenSession) -> Response:
        model = session.capture.model
        listed = {
            "id": model,
            "object": "model",
            "created": 0,
            "owned_by": "sparring",
            "type": "model",
            "display_name": model,
            "created_at": "1970-01-01T00:00:00Z",
        }
        ends = {"first_id": model, "last_id": model}
        return Response.of_json({"object": "list", "data": [listed], "has_more": False, **ends})

    async def _ask(self, session: OpenSession, call: ModelCall) -> tuple[Exchange, ModelReply]:
        """Have the rollout's loop answer; the call continues even if the client disconnects."""
        loop = asyncio.get_running_loop()
        if self._mailbox is None:
            self._mailbox = Mailbox(loop)
        pending = _PendingCall(session, call, self._mailbox, loop.create_future())
        timer = loop.call_later(_BLOCKED_SECONDS, pending.refuse_if_blocked)
        try:
            session.mailbox.post(pending.start)
            return await pending.answer
        except RuntimeError:  # the loop is closed: its rollouts are over
            raise Refused(410, "this rollout has ended; its session takes no more calls") from None
        finally:
            timer.cancel()


class _PendingCall:
    """A call between two event loops: the server's, and the one that plays its rollout."""

    __slots__ = ("_call", "_exchange", "_has_started", "_mailbox", "_refused", "_session", "answer")

    def __init__(
        self,
        session: OpenSession,
        call: ModelCall,
        mailbox: Mailbox,
        answer: asyncio.Future[tuple[Exchange, ModelReply]],
    ) -> None:
        self._session = session
        self._call = call
        self._mailbox = mailbox
        self.answer = answer
        self._has_started = False
        self._exchange: Exchange | None = None
        self._refused: Refused | None = None

    def start(self) -> None:
        """Start the call; runs on the loop that plays the rollout."""
        self._has_started = True
        try:
            self._exchange = self._session.capture.begin(self._call)
        except Refused as refused:
            self._refused = refused
            self._post()
        else:
            self._exchange.task.add_done_callback(self._post)

    def _post(self, _: object = None) -> None:
        self._mailbox.post(self._hand_over)

    def _hand_over(self) -> None:
        """Set the answer; runs on the server's loop."""
        if self.answer.done():  # refused as blocked, or cancelled with its request
            return
        try:
            if self._exchange is None:
                raise self._refused or Refused(500, "the call was not answered")
            self.answer.set_result((self._exchange, self._exchange.reply()))
        except Refused as refused:
            self.answer.set_exception(refused)

    def refuse_if_blocked(self) -> None:
        """Refuse a call that the rollout's loop has not started."""
        if not self._has_started and not self.answer.done():
            self.answer.set_exception(Refused(400, _BLOCKED))


def _with_retries(sent: WireCall, request: Request) -> WireCall:
    """Return the call with the retry flag and idempotency key of the request's headers."""
    count = request.header(b"x-stainless-retry-count")
    key = request.header(b"idempotency-key")[:200]
    is_retry = count.isdigit() and int(count) > 0
    return sent.retried(is_retry=is_retry, key=key) if is_retry or key else sent
