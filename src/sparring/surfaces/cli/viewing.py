"""Implements `sparring view`, `sparring serve` and `sparring token …`."""

from __future__ import annotations

import sys
import time
import webbrowser
from pathlib import Path
from types import ModuleType

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.json import JsonObject
from sparring.operations.operation import NoArguments
from sparring.operations.run_views import ListRuns
from sparring.operations.runs import list_runs
from sparring.operations.tokens import (
    CreateToken,
    TokenQuery,
)
from sparring.operations.tokens import (
    create_token as create,
)
from sparring.operations.tokens import (
    list_tokens as list_all,
)
from sparring.operations.tokens import (
    revoke_token as revoke,
)
from sparring.surfaces.cli.starting import owner, reader
from sparring.surfaces.cli.tables import print_json, printable


def view(runs: str | None, *, port: int, has_browser: bool) -> None:
    """Serve the web view on this machine until interrupted."""
    serving = _serving()
    caller = reader(runs)
    if not caller.runs.is_dir():
        raise InvalidInput(
            f"there are no runs in {caller.runs.absolute()}; start one with `sparring train`, or "
            "name another folder with --runs"
        )

    def announce(link: str) -> None:
        print(f"open  {link}\n      (works once; Ctrl-C ends the server)", flush=True)

    def start(link: str) -> None:
        if has_browser and sys.stdout.isatty():
            webbrowser.open(link)

    serving.view(caller, port, announce, start)


def export(folder: str, names: list[str], runs: str | None, *, has_held_out: bool) -> None:
    """Write chosen runs as a folder that a browser shows without a server."""
    _serving()
    from sparring.surfaces.web.export import Export

    caller = reader(runs)
    newest = list_runs(ListRuns(count=20), caller).runs
    chosen = names or [each.run for each in newest]
    if not chosen:
        raise InvalidInput(
            f"there are no runs in {caller.runs.absolute()}; start one with `sparring train`, or "
            "pass another folder with --runs"
        )
    made = Export(Path(folder), caller, has_held_out=has_held_out)
    count = made.write(chosen)
    print(f"wrote {len(chosen)} runs as {count} files; open {Path(folder) / 'index.html'}")
    if made.left_out:
        print(
            f"left out rollouts on held-out cases of {', '.join(made.left_out)}; --held-out "
            "includes them",
            file=sys.stderr,
        )


def serve(runs: str | None, options: JsonObject) -> None:
    """Serve the web view, the HTTP API and MCP until interrupted."""
    serving = _serving()
    if bool(options["certificate"]) is not bool(options["key"]):
        raise InvalidInput("--cert and --key belong together; pass both, or neither")
    caller = owner(runs)
    caller.runs.mkdir(parents=True, exist_ok=True)

    def announce(address: str) -> None:
        print(f"serving {caller.runs.absolute()} at {address}; MCP at {address}/mcp", flush=True)
        if not list_all(NoArguments(), caller).tokens:
            print("no tokens yet: sparring token create NAME --role viewer", flush=True)

    serving.serve(caller, serving.Binding(**options), announce)


def create_token(name: str, role: str, days: float, runs: str | None, *, as_json: bool) -> None:
    """Create a token and print it."""
    request = {"name": name, "role": role, "days": days or None}
    made = create(CreateToken.model_validate(request), owner(runs))
    if as_json:
        print_json(made)
        return
    print(made.token)
    print(f"token of {name} ({role}); it is not shown again", file=sys.stderr)


def list_tokens(runs: str | None, *, as_json: bool) -> None:
    """Print the tokens of the project."""
    found = list_all(NoArguments(), owner(runs))
    if as_json:
        print_json(found)
        return
    for each in found.tokens:
        expires = "never"
        if each.expires is not None:
            expires = time.strftime("%Y-%m-%d", time.localtime(each.expires))
        line = f"{each.id}  {each.state:8} {each.role:9} {each.name}  expires {expires}"
        print(printable(line))


def revoke_token(token: str, runs: str | None, *, as_json: bool) -> None:
    """Revoke a token."""
    line = revoke(TokenQuery(id=token), owner(runs))
    if as_json:
        print_json(line)
    else:
        print(printable(f"{line.id} of {line.name} is revoked"))


def _serving() -> ModuleType:
    try:
        from sparring.surfaces.web import serving
    except ImportError as error:
        raise MissingPackage(f"{error}: pip install 'sparring[web]'") from error
    return serving
