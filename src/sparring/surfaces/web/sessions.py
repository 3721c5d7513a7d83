"""Authenticates callers: one-time links, cookies, and tokens of a team's server.

Secrets are compared by their digests. A link works once. A session ends after 30 days, when the
browser signs out, or when the token it signed in with expires or is revoked.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sparring.operations.operation import Caller

_SESSION_SECONDS = 30 * 24 * 3600.0
_MAX_SESSIONS = 10_000
_WINDOW_SECONDS = 60.0
_MAX_FAILURES = 20  # of one address, within the window
_MAX_ADDRESSES = 10_000

FindCaller = Callable[[str], Caller | None]


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One signed-in browser. `token` is the token it used; empty for a one-time link."""

    caller: Caller
    ends: float
    token: str = ""


@dataclass(slots=True)
class Failures:
    """Counts wrong tokens by address within the last minute, to slow down guessing."""

    clock: Callable[[], float] = time.monotonic
    _times: dict[str, list[float]] = field(default_factory=dict)

    def note(self, address: str) -> None:
        """Count one wrong token."""
        if len(self._times) >= _MAX_ADDRESSES:
            self._times.clear()
        self._times[address] = [*self._recent(address), self.clock()]

    def is_blocked(self, address: str) -> bool:
        """Return whether an address has sent too many wrong tokens within a minute."""
        return len(self._recent(address)) >= _MAX_FAILURES

    def _recent(self, address: str) -> list[float]:
        least = self.clock() - _WINDOW_SECONDS
        return [each for each in self._times.get(address, ()) if each > least][-_MAX_FAILURES:]


@dataclass(slots=True)
class RateLimit:
    """A token bucket per caller: `burst` requests at once, `per_second` on average."""

    per_second: float = 50.0
    burst: float = 400.0
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, name: str) -> bool:
        """Return whether a caller may send a request now; an allowed request is counted."""
        now = self.clock()
        left, since = self._left.get(name, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.per_second)
        if left < 1:
            self._left[name] = (left, now)
            return False
        if len(self._left) >= _MAX_ADDRESSES:
            self._left.clear()
        self._left[name] = (left - 1, now)
        return True


class BrowserSessions:
    """The sessions of one server. `find_caller` returns the caller of a token; without it, browsers
    can sign in with one-time links only."""

    def __init__(
        self,
        find_caller: FindCaller | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.failures = Failures()
        self._find_caller = find_caller
        self._clock = clock
        self._links: dict[str, Caller] = {}
        self._sessions: dict[str, BrowserSession] = {}

    @property
    def has_tokens(self) -> bool:
        """Whether callers can sign in with a token."""
        return self._find_caller is not None

    def new_link(self, caller: Caller) -> str:
        """Return a secret that signs in one browser, once."""
        secret = secrets.token_urlsafe(32)
        self._links[_digest(secret)] = caller
        return secret

    def sign_in(self, secret: str) -> str:
        """Return the cookie of a new session; empty if the secret is neither a link nor a token."""
        caller = self._links.pop(_digest(secret), None)
        token = ""
        if caller is None:
            caller, token = self.caller_of_token(secret), secret
        if caller is None:
            return ""
        if len(self._sessions) >= _MAX_SESSIONS:
            own = (key for key, each in self._sessions.items() if each.caller.name == caller.name)
            self._sessions.pop(next(own, None) or next(iter(self._sessions)))
        cookie = secrets.token_urlsafe(32)
        ends = self._clock() + _SESSION_SECONDS
        self._sessions[_digest(cookie)] = BrowserSession(caller, ends, token)
        return cookie

    def caller_of_token(self, token: str) -> Caller | None:
        """Return the caller that a token belongs to; None if it is unknown, expired or revoked."""
        return self._find_caller(token) if self._find_caller is not None and token else None

    def caller_of_cookie(self, cookie: str) -> Caller | None:
        """Return the caller of a session; None if the session does not exist or has ended."""
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        is_over = session.ends < self._clock()
        if is_over or (session.token and self.caller_of_token(session.token) is None):
            del self._sessions[key]
            return None
        return session.caller

    def sign_out(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(cookie), None)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
