"""`sparring`: the commands, and the output of errors.

A command's module is imported when the command is used, so that `sparring --help` is fast.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

_MAIN, _INSPECT, _OPERATE = "From agent to model", "Inspect", "Operate"
_PANELS = {
    _MAIN: ("init", "check", "train", "prove", "ship", "chat", "eval"),
    _INSPECT: ("audit", "view", "doctor", "run", "rollout", "env", "config", "models"),
    _OPERATE: ("limits", "mcp", "serve", "activity", "plan", "token"),
}
_GROUPS = {
    "run": "Runs: list, follow, stop, resume.",
    "rollout": "Read the rollouts of a run.",
    "env": "Environments of this project.",
    "config": "Settings with their sources and locks.",
    "models": "Models for development.",
    "activity": "The activity log: who did what, and which calls were refused.",
    "plan": "Plan a run before starting it.",
    "token": "Tokens of a team's server.",
}
# The commands with their help. A command's function has its name, with `_` for a space.
_COMMANDS = {
    "init": "Write a working environment with a test, as a starting point.",
    "check": "Find out before training whether an environment is learnable, and what training "
    "costs.",
    "train": "Train an environment's agent on its own measures with GRPO, then prove the result.",
    "prove": "Compare base and trained model on held-out cases; exit with 110 unless it improved.",
    "ship": "Write the trained model as adapter, merged weights and GGUF, each verified and "
    "played.\n\nExits with 110 if a file is faulty, or if the chosen one plays worse than its "
    "checkpoint.",
    "chat": "Chat with an environment's agent, untrained or trained; tool calls are shown.",
    "eval": "Play an environment's cases, judge the rollouts, and show how well the agent does.",
    "audit": "Find faults in measures: let them judge empty and worthless answers, each twice.",
    "view": "Show runs in the browser: live curves, rollouts, verdicts, proofs.",
    "doctor": "Check this machine, and show a fix for everything that is missing.",
    "limits": "Show the limits of AI operators in this project, and how much of the budget is "
    "left.",
    "mcp": "Let an AI agent operate this project, with tools over MCP on standard input and "
    "output.",
    "serve": "Serve the web view, the HTTP API and MCP to a team, with tokens and roles.",
    "run list": "List runs in all states, newest first.",
    "run show": "Show a run's state, processes, step, metrics, time left, and why it failed.",
    "run results": "Show a run's summary, evenly spaced rows of its metrics, and its checkpoints.",
    "run watch": "Follow a run to its end, like the command that started it.",
    "run wait": "Wait for a run to end, and exit with its exit code; with 101 if the time or "
    "`--news` ends the wait first.",
    "run logs": "Show the last lines of the log of one of the run's processes.",
    "run stop": "Stop a run; a training run saves a checkpoint first. `run resume` resumes it.",
    "run resume": "Resume a stopped or failed run. Follow an active run; show a completed one.",
    "run clone": "Start a new run with the settings of another run, some of them changed. It "
    "starts from the beginning, not from a checkpoint.",
    "run report": "Write a run's report: its web view in one HTML file.",
    "run compare": "Compare runs: their settings, curves, and differences case by case.",
    "run delete": "Delete a run that has ended, with its rollouts and weights.",
    "run join": "Join a training run started on another host; both hosts must share the runs "
    "folder.",
    "run supervise": "Supervise, in this process, a run that was started with --launcher manual.",
    "run manifest": "Print the Kubernetes manifest of a run that was started with --launcher "
    "manual.",
    "run reindex": "Rebuild the index of runs from their folders.",
    "rollout list": "List a page of a run's rollouts.",
    "rollout show": "Show one rollout: its messages, its tool calls, and why it passed or failed.",
    "env list": "List the environments, found by reading source; no code is run.",
    "env show": "Show an environment's description, measures and config fields.",
    "env test": "Play and judge a few cases, to test every part of an environment.",
    "config show": "Show the settings with their source and their lock.",
    "models fetch": "Build a development model in advance; otherwise `--model NAME` builds it on "
    "first use.",
    "activity show": "Show who did what, and which calls were refused.",
    "activity verify": "Check that no entry was changed or removed. Exits with 1 if one was.",
    "plan make": "Show the settings, the cost and the missing parts of a run, without starting it.",
    "plan revise": "Make a new plan from an existing one, with one field changed.",
    "plan start": "Start the run of a plan, unchanged. A plan can be started once.",
    "token create": "Create a token and print it. Only its digest is stored.",
    "token list": "List the tokens of this project.",
    "token revoke": "Revoke a token and end its sessions at once.",
}
# The modules of these functions, by whole commands or their first words.
_MODULES = {
    "starting": (
        *("check", "train", "prove", "ship", "eval", "audit"),
        *("run resume", "run clone", "plan start"),
    ),
    "projects": ("init", "chat", "doctor", "env", "config", "models"),
    "serving": ("view", "serve", "mcp"),
    "operating": ("limits", "activity", "plan", "token"),
    "runs": ("run",),
    "logs": ("run logs",),
    "rollouts": ("rollout",),
}


class _Command(TyperCommand):
    """A command that is made from its function when its parameters are needed."""

    path: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.params, self.callback

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback"):
            raise AttributeError(name)
        from sparring.surfaces.cli.commands import command_of

        homes = {path: module for module, paths in _MODULES.items() for path in paths}
        module = homes.get(self.path) or homes[self.path.partition(" ")[0]]
        functions = importlib.import_module(f"sparring.surfaces.cli.{module}")
        made = command_of(getattr(functions, self.path.replace(" ", "_")))
        self.params, self.callback = made.params, made.callback
        return getattr(self, name)


def _application() -> typer.Typer:
    """Return the application with all commands, none of them made yet."""
    panels = {name: panel for panel, names in _PANELS.items() for name in names}
    application = typer.Typer(
        name="sparring",
        help="Train the agent you ship on the evals you already have: check, train, prove, ship.",
        invoke_without_command=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        callback=_common,
    )
    groups = {name: typer.Typer(help=text, no_args_is_help=True) for name, text in _GROUPS.items()}
    for name, group in groups.items():
        application.add_typer(group, name=name, rich_help_panel=panels[name])
    for path, text in _COMMANDS.items():
        first, _, last = path.partition(" ")
        home, name = (groups[first], last) if last else (application, first)
        kind = type("_Named", (_Command,), {"path": path})
        home.command(name, cls=kind, help=text, rich_help_panel=panels[first])(_unmade)
    return application


def _unmade() -> None:
    """Stands for a command's function until the command is made."""


def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(installed("sparring"))
        raise typer.Exit


app = _application()


def run() -> None:
    """Run the command line. Errors are printed in one format and determine the exit code."""
    from sparring.contracts.errors import SparringError

    try:
        sys.exit(app(standalone_mode=False) or 0)
    except SparringError as error:
        sys.exit(show_error(error.name, str(error), error.exit_code))
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "pydantic_core":  # text that is not UTF-8
            sys.exit(show_error("InvalidInput", str(error), 2))
        usage = getattr(error, "format_message", None)  # set on typer's usage errors
        if usage is None:
            raise
        message, context = usage(), getattr(error, "ctx", None)
        if message and context is not None and "--json" not in sys.argv:
            message = f"{message.rstrip('.')}; `{context.command_path} --help` shows the usage"
        sys.exit(show_error("InvalidInput", message, 2) if message else 2)


def show_error(kind: str, message: str, code: int) -> int:
    """Print an error, as JSON with `--json`, and return its exit code."""
    if "--json" in sys.argv:
        print(json.dumps({"error": {"type": kind, "message": message, "exit_code": code}}))
    else:
        print(f"sparring: {message}", file=sys.stderr)
    return code
