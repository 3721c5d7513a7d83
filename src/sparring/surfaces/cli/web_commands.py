"""Declares `sparring view`, `sparring serve` and `sparring token …`."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import AsJson, RunsFolder

tokens = typer.Typer(help="Tokens of a team's server.", no_args_is_help=True)


def view(
    run: Annotated[
        list[str] | None, typer.Argument(help="Runs to export; default: the newest 20.")
    ] = None,
    runs: RunsFolder = None,
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
    """Show runs in the browser: live curves, rollouts, verdicts, proofs."""
    from sparring.surfaces.cli import viewing

    if export:
        viewing.export(export, run or [], runs, has_held_out=held_out)
    else:
        viewing.view(runs, port=port, has_browser=browser)


def serve(
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
    runs: RunsFolder = None,
) -> None:
    """Serve the web view, the HTTP API and MCP to a team, with tokens and roles."""
    from sparring.surfaces.cli import viewing

    options = {"address": host, "port": port, "names": tuple(name or ()), "certificate": cert}
    viewing.serve(runs, {**options, "key": key, "is_behind_proxy": behind_proxy})


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Name of the holder in the activity log.")],
    role: Annotated[str, typer.Option(help="viewer, operator or owner.")] = "viewer",
    days: Annotated[float, typer.Option(help="Days until the token expires; 0: never.")] = 90.0,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. Only its digest is stored."""
    from sparring.surfaces.cli import viewing

    viewing.create_token(name, role, days, runs, as_json=as_json)


@tokens.command("list")
def list_tokens(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """List the tokens of this project."""
    from sparring.surfaces.cli import viewing

    viewing.list_tokens(runs, as_json=as_json)


@tokens.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="The token's id, from `token list`.")],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token and end its sessions at once."""
    from sparring.surfaces.cli import viewing

    viewing.revoke_token(token, runs, as_json=as_json)
