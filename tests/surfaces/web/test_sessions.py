"""LinkSessions work once; sessions end with their token; wrong tokens are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.operations.operation import Caller, Role
from sparring.surfaces.web import sessions as sessions_module
from sparring.surfaces.web.sessions import BrowserSessions, Failures

OWNER = Caller(Role.OWNER, Path("runs"))


def test_a_link_works_once() -> None:
    sessions = BrowserSessions()
    secret = sessions.new_link(OWNER)
    cookie = sessions.sign_in(secret)
    assert sessions.caller_of_cookie(cookie) == OWNER
    assert sessions.sign_in(secret) == ""
    assert sessions.caller_of_cookie("") is None
    assert sessions.caller_of_cookie(secret) is None
    sessions.sign_out(cookie)
    assert sessions.caller_of_cookie(cookie) is None


def test_a_session_ends_with_its_token_and_with_time() -> None:
    known = {"token": OWNER}
    now = [0.0]
    sessions = BrowserSessions(known.get, lambda: now[0])
    first, second = sessions.sign_in("token"), sessions.sign_in("token")
    assert sessions.caller_of_cookie(first) == OWNER
    now[0] = 31 * 24 * 3600.0
    assert sessions.caller_of_cookie(first) is None
    now[0] = 0.0
    known.clear()
    assert sessions.caller_of_cookie(second) is None
    assert sessions.sign_in("token") == ""


def test_failures_are_forgotten_after_a_minute() -> None:
    now = [0.0]
    failures = Failures(lambda: now[0])
    for _ in range(20):
        assert not failures.is_blocked("a")
        failures.note("a")
    assert failures.is_blocked("a")
    assert not failures.is_blocked("b")
    now[0] = 61.0
    assert not failures.is_blocked("a")


def test_a_caller_with_too_many_sessions_loses_their_own_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_module, "_MAX_SESSIONS", 3)
    viewer = Caller(Role.VIEWER, Path("runs"), "bob")
    sessions = BrowserSessions({"owner": OWNER, "bob": viewer}.get)
    mine = sessions.sign_in("owner")
    for _ in range(10):
        sessions.sign_in("bob")
    assert sessions.caller_of_cookie(mine) == OWNER
