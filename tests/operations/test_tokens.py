"""Tokens are stored as digests, expire, can be revoked, and open one project."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.operations import tokens as module
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.tokens import (
    CreateToken,
    TokenQuery,
    Tokens,
    create_token,
    list_tokens,
    revoke_token,
)


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    (tmp_path / "runs").mkdir()
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)


def test_a_token_gives_its_holder_its_role(owner: Caller) -> None:
    made = create_token(CreateToken(name="vera", role="operator"), owner)
    tokens = Tokens(owner.runs, owner.folder)
    caller = tokens.caller_of(made.token)
    assert caller == Caller(Role.OPERATOR, owner.runs, "vera", folder=owner.folder)
    changed = made.token[:-1] + ("A" if made.token[-1] != "A" else "B")
    assert tokens.caller_of(changed) is None
    assert tokens.caller_of(f"{made.token}x") is None


@pytest.mark.parametrize(
    "content", ["", "not json", '{"format": 2, "tokens": []}', '{"format": 1, "tokens": [7]}']
)
def test_a_damaged_or_newer_file_is_refused_and_never_overwritten(
    owner: Caller, content: str
) -> None:
    create_token(CreateToken(name="vera", role="operator"), owner)
    made = create_token(CreateToken(name="ada", role="viewer"), owner)
    (file,) = owner.runs.rglob("tokens.json")
    file.write_text(content)
    assert Tokens(owner.runs, owner.folder).caller_of(made.token) is None
    with pytest.raises(InvalidInput, match="is damaged, or a newer version wrote it"):
        create_token(CreateToken(name="kim", role="viewer"), owner)
    assert file.read_text() == content


def test_neither_file_nor_log_holds_a_token(owner: Caller) -> None:
    made = create_token(CreateToken(name="vera"), owner)
    path = owner.runs / ".sparring" / "tokens.json"
    secret = made.token.rpartition("_")[2]
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    log = ActivityLog(owner.runs).path.read_text()
    assert "token.create" in log
    assert secret not in log
    assert secret not in repr(made)


def test_revoked_and_expired_tokens_open_nothing(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(owner.runs, owner.folder)
    first = create_token(CreateToken(name="vera"), owner)
    second = create_token(CreateToken(name="wim", days=1), owner)
    assert tokens.caller_of(first.token) is not None
    revoke_token(TokenQuery(id=first.id), owner)
    assert tokens.caller_of(first.token) is None
    assert tokens.caller_of(second.token) is not None
    later = module.time.time() + 2 * 86_400
    monkeypatch.setattr(module.time, "time", lambda: later)
    assert tokens.caller_of(second.token) is None
    states = {each.name: each.state for each in list_tokens(NoArguments(), owner).tokens}
    assert states == {"vera": "revoked", "wim": "expired"}


def test_a_token_opens_one_project_only(owner: Caller, tmp_path: Path) -> None:
    made = create_token(CreateToken(name="vera"), owner)
    other = tmp_path / "other"
    other.mkdir()
    assert Tokens(other, tmp_path).caller_of(made.token) is None


def test_only_the_owner_makes_tokens_and_nobody_gets_a_reserved_name(owner: Caller) -> None:
    agent = Caller(Role.OPERATOR, owner.runs, "agent", folder=owner.folder)
    for ask in (create_token, list_tokens, revoke_token):
        with pytest.raises(NotPermitted):
            ask.ask({"name": "x"} if ask is create_token else {"id": "x"} if ask is revoke_token else {}, agent)  # fmt: skip  # noqa: E501
    with pytest.raises(InvalidInput, match="reserved"):
        create_token(CreateToken(name="supervisor", role="owner"), owner)
    with pytest.raises(InvalidInput, match="there is no token"):
        revoke_token(TokenQuery(id="nothing"), owner)


@given(text=st.text(max_size=80))
def test_no_other_text_is_a_token(text: str) -> None:
    assert Tokens(Path("nowhere"), Path()).caller_of(text) is None
