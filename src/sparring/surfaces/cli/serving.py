"""The commands that serve: `sparring view`, `sparring serve` and `sparring mcp`."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.installed import how_to_install
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.run_views import ListRuns
from sparring.operations.runs import list_runs
from sparring.operations.tokens import list_tokens
from sparring.projects import find_project
from sparring.surfaces.cli.commands import Owner, Reader, RunsFolder
from sparring.surfaces.cli.completion import complete_runs

_ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}


def view(
    caller: Reader,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs to export; default: the newest 20.", autocompletion=complete_runs
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 picks a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser.")
    ] = True,
    export: Annotated[
        str, typer.Option(help="Write a folder that a browser shows without a server.")
    ] = "",
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Also export rollouts on held-out cases.")
    ] = False,
) -> None:
    """Serve the web view on this machine until interrupted, or export runs."""
    serving = _serving()
    if export:
        _export(Path(export), run or [], caller, has_held_out=held_out)
        return
    if not caller.runs.is_dir():
        raise InvalidInput(
            f"there are no runs in {caller.runs.absolute()}; start one with `sparring train`, or "
            "name another folder with --runs"
        )

    def announce(link: str) -> None:
        print(f"open  {link}\n      (works once; Ctrl-C ends the server)", flush=True)

    def start(link: str) -> None:
        if browser and sys.stdout.isatty():
            webbrowser.open(link)

    serving.view(caller, port, announce, start)


def _export(folder: Path, names: list[str], caller: Caller, *, has_held_out: bool) -> None:
    """Write chosen runs as a folder that a browser shows without a server."""
    from sparring.surfaces.web.export import Export

    newest = list_runs(ListRuns(count=20), caller).runs
    chosen = names or [each.run for each in newest]
    if not chosen:
        raise InvalidInput(
            f"there are no runs in {caller.runs.absolute()}; start one with `sparring train`, or "
            "pass another folder with --runs"
        )
    made = Export(folder, caller, has_held_out=has_held_out)
    count = made.write(chosen)
    print(f"wrote {len(chosen)} runs as {count} files; open {folder / 'index.html'}")
    if made.left_out:
        print(
            f"left out rollouts on held-out cases of {', '.join(made.left_out)}; --held-out "
            "includes them",
            file=sys.stderr,
        )


def serve(
    caller: Owner,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8700,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name that browsers use for the server; may be repeated."),
    ] = None,
    cert: Annotated[str, typer.Option(help="File with the TLS certificate.")] = "",
    key: Annotated[str, typer.Option(help="File with the private key of the certificate.")] = "",
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy on this machine adds TLS.")
    ] = False,
) -> None:
    """Serve the web view, the HTTP API and MCP until interrupted."""
    serving = _serving()
    if bool(cert) is not bool(key):
        raise InvalidInput("--cert and --key belong together; pass both, or neither")
    caller.runs.mkdir(parents=True, exist_ok=True)

    def announce(address: str) -> None:
        print(f"serving {caller.runs.absolute()} at {address}; MCP at {address}/mcp", flush=True)
        if not list_tokens(NoArguments(), caller).tokens:
            print("no tokens yet: sparring token create NAME --role viewer", flush=True)

    binding = serving.Binding(host, port, tuple(name or ()), cert, key, behind_proxy)
    serving.serve(caller, binding, announce)


def mcp(
    name: Annotated[
        str, typer.Option("--as", help="Name of the operator in the activity log.")
    ] = "operator",
    role: Annotated[
        str, typer.Option(help="operator, or viewer, which is read-only.")
    ] = "operator",
    project: Annotated[
        str, typer.Option(help="Folder of the project; default: the current one.")
    ] = ".",
    runs: RunsFolder = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration for an MCP client.")
    ] = False,
    print_tools: Annotated[
        bool, typer.Option("--print-tools", help="Print the tools as function schemas.")
    ] = False,
) -> None:
    """Serve the tools over MCP until the client disconnects, or print how to connect."""
    if role not in _ROLES:
        raise InvalidInput(
            f"--role must be operator or viewer, not {role!r}; the owner uses the CLI"
        )
    if print_tools:
        from sparring.surfaces.tools.catalogue import function_schemas

        print(json.dumps(function_schemas(_ROLES[role]), indent=2))
        return
    folder = Path(project).resolve()
    if not folder.is_dir():
        raise InvalidInput(f"--project {folder}: there is no such folder")
    runs_folder = Path(runs) if runs is not None else find_project(folder).runs
    caller = Caller(_ROLES[role], runs_folder, name, folder)
    if print_config:
        arguments = ["-m", "sparring", "mcp", "--project", str(folder), "--as", name]
        arguments += [] if role == "operator" else ["--role", role]
        arguments += [] if runs is None else ["--runs", str(runs_folder.resolve())]
        server = {"command": sys.executable, "args": arguments}
        print(json.dumps({"mcpServers": {"sparring": server}}, indent=2))
        return
    try:
        from sparring.surfaces.mcp import serve as serve_tools
    except ImportError as error:
        raise MissingPackage(f"{error}: {how_to_install('mcp')}") from error
    if sys.stdin.isatty():
        hint = "this command is for MCP clients; `sparring mcp --print-config` shows how to set one"
        print(f"{hint} up", file=sys.stderr)
    serve_tools(caller)


def _serving() -> ModuleType:
    try:
        from sparring.surfaces.web import serving
    except ImportError as error:
        raise MissingPackage(f"{error}: {how_to_install('web')}") from error
    return serving
