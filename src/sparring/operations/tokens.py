"""Operations that create, list and revoke tokens of a team's server.

Only the digest of a token is stored, in the folder of the runs that it gives access to. A token is
valid for one folder of runs.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation
from sparring.run_folder.files import file_lock, read_json_or_empty, write_json

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_TOKEN = re.compile(r"sparring_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_LOCK_SECONDS = 5.0
_DAY_SECONDS = 86_400.0


class CreateToken(Frozen):
    """The holder, the role and the lifetime of a new token."""

    name: str = Field(max_length=64, description="name of the holder in the activity log")
    role: Literal["owner", "operator", "viewer"] = Field(
        default="viewer", description="what the holder may do"
    )
    days: float = Field(default=90.0, ge=0, description="days until the token expires; 0: never")


class TokenQuery(Frozen):
    """One token."""

    id: str = Field(description="the 8 characters after `sparring_`, as `token list` shows them")


class StoredToken(Frozen):
    """One token, as stored."""

    id: str
    name: str
    role: str
    digest: str
    created: float
    expires: float | None = None
    revoked: bool = False

    def is_valid(self, now: float) -> bool:
        """Whether the token is neither revoked nor expired at the time `now`."""
        return not self.revoked and (self.expires is None or now < self.expires)


class TokenLine(Frozen):
    """One token of a list, without its digest."""

    id: str
    name: str
    role: str
    created: float
    expires: float | None = None
    state: str


class TokenList(Frozen):
    """All tokens of a project."""

    tokens: tuple[TokenLine, ...]


class CreatedToken(Frozen):
    """A new token. Its text is shown only once, because only its digest is stored."""

    id: str
    token: str = Field(repr=False)
    name: str
    role: str
    expires: float | None = None


class Tokens:
    """The tokens of one folder of runs. The file is read again only if it has changed."""

    def __init__(self, runs: Path, folder: Path) -> None:
        self._runs = runs
        self._folder = folder
        self._path = runs / ".sparring" / "tokens.json"
        self._stamp: tuple[int, int] | None = None
        self._known: dict[str, StoredToken] = {}

    def read(self) -> dict[str, StoredToken]:
        """Return all tokens, by id."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            return {}
        if stamp != self._stamp:
            found = self._stored()
            self._known, self._stamp = {each.id: each for each in found}, stamp
        return self._known

    def _stored(self) -> list[StoredToken]:
        """Return the tokens in the file. Raise InvalidInput if the file is damaged or newer."""
        content = read_json_or_empty(self._path)
        try:
            if content.get("format") == _FORMAT:
                return [StoredToken.model_validate(row) for row in content["tokens"]]
        except (ValidationError, KeyError, TypeError):
            pass
        raise InvalidInput(
            f"{self._path} cannot be read: it is damaged, or a newer version wrote it; restore it, "
            "or remove it and create the tokens again"
        )

    def store(self, token: StoredToken) -> None:
        """Add or replace one token."""
        with file_lock(self._path.with_name("tokens.lock"), _LOCK_SECONDS):
            self._stamp = None
            tokens = {**self.read(), token.id: token}
            rows: list[Any] = [each.model_dump(mode="json") for each in tokens.values()]
            write_json(self._path, {"format": _FORMAT, "tokens": rows})
            self._path.chmod(0o600)
            self._stamp = None

    def caller_of(self, text: str) -> Caller | None:
        """Return the caller that a token belongs to; None if it is unknown or no longer valid."""
        match = _TOKEN.fullmatch(text)
        try:
            stored = self.read().get(match[1]) if match else None
        except InvalidInput as error:  # the server refuses all tokens, and keeps running
            _LOG.error("%s", error)
            return None
        digest = _digest(text)
        if stored is None or not hmac.compare_digest(stored.digest, digest):
            return None
        if not stored.is_valid(time.time()):
            return None
        role = Role[stored.role.upper()]
        return Caller(role, self._runs, stored.name, folder=self._folder)


@operation("token.create", role=Role.OWNER, changes_state=True, forms=Forms(cli="token create"))
def create_token(request: CreateToken, caller: Caller) -> CreatedToken:
    """Create a token for `sparring serve`. Its text is shown once; only its digest is stored."""
    role = Role[request.role.upper()]
    Caller(min(role, Role.OPERATOR), caller.runs, request.name)  # raises for a reserved name
    caller.runs.mkdir(parents=True, exist_ok=True)
    identity = secrets.token_hex(4)
    text = f"sparring_{identity}_{secrets.token_urlsafe(32)}"
    now = time.time()
    stored = StoredToken(
        id=identity,
        name=request.name,
        role=request.role,
        digest=_digest(text),
        created=now,
        expires=now + request.days * _DAY_SECONDS if request.days else None,
    )
    Tokens(caller.runs, caller.folder).store(stored)
    return CreatedToken(
        id=identity, token=text, name=stored.name, role=stored.role, expires=stored.expires
    )


@operation("token.list", role=Role.OWNER, changes_state=False, forms=Forms(cli="token list"))
def list_tokens(_: NoArguments, caller: Caller) -> TokenList:
    """List the tokens of this project: ids, holders, roles and states, without the texts."""
    tokens = Tokens(caller.runs, caller.folder).read().values()
    return TokenList(tokens=tuple(_line(each) for each in tokens))


@operation(
    "token.revoke",
    role=Role.OWNER,
    changes_state=True,
    ends=True,
    is_idempotent=True,
    forms=Forms(cli="token revoke"),
)
def revoke_token(request: TokenQuery, caller: Caller) -> TokenLine:
    """Revoke a token, and end its sessions at once."""
    tokens = Tokens(caller.runs, caller.folder)
    stored = tokens.read().get(request.id)
    if stored is None:
        raise InvalidInput(
            f"there is no token {request.id[:80]!r}; `sparring token list` shows them"
        )
    revoked = stored.model_copy(update={"revoked": True})
    tokens.store(revoked)
    return _line(revoked)


def _line(token: StoredToken) -> TokenLine:
    state = "valid" if token.is_valid(time.time()) else "expired"
    return TokenLine(
        id=token.id,
        name=token.name,
        role=token.role,
        created=token.created,
        expires=token.expires,
        state="revoked" if token.revoked else state,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
