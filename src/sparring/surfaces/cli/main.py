"""`sparring`: the commands, and the output of errors.

The modules that declare commands import typer and little else. Each command imports its
implementation when it runs, so that `sparring --help` is fast.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from sparring.surfaces.cli import (
    operator_commands,
    options,
    proof_commands,
    ship_commands,
    web_commands,
)
from sparring.surfaces.cli.options import (
    AsJson,
    Assignments,
    Detach,
    EnvironmentName,
    Launcher,
    RunsFolder,
)
from sparring.surfaces.cli.rollout_commands import rollouts
from sparring.surfaces.cli.run_commands import runs as run_commands

app = typer.Typer(
    name="sparring",
    help="Train the agent you ship on the evals you already have: check, train, prove, ship.",
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
models = typer.Typer(help="Models for development.", no_args_is_help=True)
environments = typer.Typer(help="Environments of this project.", no_args_is_help=True)
config = typer.Typer(help="Settings with their sources and locks.", no_args_is_help=True)
_MAIN, _INSPECT, _OPERATE = "From agent to model", "Inspect", "Operate"
app.command("check", rich_help_panel=_MAIN)(proof_commands.check)
app.command("prove", rich_help_panel=_MAIN)(proof_commands.prove)
app.command("ship", rich_help_panel=_MAIN)(ship_commands.ship)
app.add_typer(run_commands, name="run", rich_help_panel=_INSPECT)
app.add_typer(rollouts, name="rollout", rich_help_panel=_INSPECT)
app.add_typer(environments, name="env", rich_help_panel=_INSPECT)
app.add_typer(config, name="config", rich_help_panel=_INSPECT)
app.add_typer(models, name="models", rich_help_panel=_INSPECT)
app.command("audit", rich_help_panel=_INSPECT)(proof_commands.audit)
app.add_typer(operator_commands.activity, name="activity", rich_help_panel=_OPERATE)
app.add_typer(operator_commands.plans, name="plan", rich_help_panel=_OPERATE)
app.command("mcp", rich_help_panel=_OPERATE)(operator_commands.mcp)
app.command("limits", rich_help_panel=_OPERATE)(operator_commands.limits)
app.command("view", rich_help_panel=_INSPECT)(web_commands.view)
app.command("serve", rich_help_panel=_OPERATE)(web_commands.serve)
app.add_typer(web_commands.tokens, name="token", rich_help_panel=_OPERATE)


@app.command("eval", rich_help_panel=_MAIN)
def evaluate(
    target: EnvironmentName,
    model: options.Model = None,
    endpoint: options.Endpoint = None,
    vllm: options.Vllm = None,
    key_variable: options.KeyVariable = None,
    family: options.Family = None,
    split: options.Split = "validation",
    cases: options.Cases = None,
    num_generations: options.EvalRollouts = None,
    temperature: options.Temperature = None,
    max_completion_length: options.MaxCompletionLength = None,
    tool_rounds: options.ToolRounds = None,
    in_flight: options.InFlight = None,
    tool_seconds: options.ToolSeconds = None,
    seed: options.EvalSeed = None,
    set: Assignments = None,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Play an environment's cases, judge the rollouts, and show how well the agent does."""
    from sparring.surfaces.cli import starting

    values = {
        "model": model,
        "family": family,
        "num_generations": num_generations,
        "temperature": temperature,
        "max_completion_length": max_completion_length,
        "tool_rounds": tool_rounds,
        "in_flight": in_flight,
        "tool_seconds": tool_seconds,
        "seed": seed,
        "launcher": launcher,
    }
    request = {
        "environment": target,
        "split": split,
        "cases": cases,
        "settings": starting.settings_from(values, set or []),
        "servers": starting.servers_from(model, endpoint, vllm, key_variable, family),
    }
    starting.evaluate(request, runs, detach=detach, as_json=as_json)


@app.command("train", rich_help_panel=_MAIN)
def train(
    target: EnvironmentName,
    model: options.Model = None,
    family: options.Family = None,
    max_steps: options.MaxSteps = None,
    cases_per_batch: options.CasesPerBatch = None,
    gradient_accumulation_steps: options.GradientAccumulationSteps = None,
    num_generations: options.GroupSize = None,
    warm_start: options.WarmStart = None,
    learning_rate: options.LearningRate = None,
    lora: options.Lora = None,
    sampling: options.Sampling = None,
    temperature: options.Temperature = None,
    max_completion_length: options.MaxCompletionLength = None,
    tool_rounds: options.ToolRounds = None,
    checkpoint_steps: options.CheckpointSteps = None,
    validation_cases: options.ValidationCases = None,
    report_to: options.ReportTo = None,
    seed: options.TrainSeed = None,
    set: Assignments = None,
    processes: options.Processes = None,
    nodes: options.Nodes = None,
    rendezvous: options.Rendezvous = None,
    prove: options.Prove = True,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Train an environment's agent on its own measures with GRPO, then prove the result."""
    from sparring.surfaces.cli import starting

    values = {
        "max_steps": max_steps,
        "cases_per_batch": cases_per_batch,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "num_generations": num_generations,
        "warm_start": warm_start and {"source": warm_start},
        "learning_rate": learning_rate,
        "lora": lora,
        "sampling": sampling,
        "temperature": temperature,
        "max_completion_length": max_completion_length,
        "tool_rounds": tool_rounds,
        "checkpoint_steps": checkpoint_steps,
        "validation_cases": validation_cases,
        "report_to": report_to,
        "seed": seed,
        "model": model,
        "family": family,
        "processes": processes,
        "nodes": nodes,
        "rendezvous": rendezvous,
        "launcher": launcher,
    }
    settings = starting.settings_from(values, set or [])
    request = {"environment": target, "settings": settings, "prove": prove}
    starting.train(request, runs, detach=detach, as_json=as_json)


@models.command("fetch")
def fetch_model(
    name: Annotated[str, typer.Argument(help="tiny or smollm2.")], as_json: AsJson = False
) -> None:
    """Build a development model in advance; otherwise `--model NAME` builds it on first use."""
    from sparring.surfaces.cli import reading

    reading.fetch(name, as_json=as_json)


@app.command("init", rich_help_panel=_MAIN)
def init(
    name: Annotated[str, typer.Argument(help="Name of the new environment, as in my_agent.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Template. tool: questions that a tool answers. documents: questions about a "
            "folder of documents. game: a game of several turns.",
        ),
    ] = "tool",
    as_json: AsJson = False,
) -> None:
    """Write a working environment with a test, as a starting point."""
    from sparring.surfaces.cli import projects

    projects.init(name, start, as_json=as_json)


@environments.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List the environments, found by reading source; no code is run."""
    from sparring.surfaces.cli import projects

    projects.list_all(as_json=as_json)


@environments.command("show")
def show_environment(name: EnvironmentName, as_json: AsJson = False) -> None:
    """Show an environment's description, measures and config fields."""
    from sparring.surfaces.cli import projects

    projects.show(name, as_json=as_json)


@environments.command("test")
def try_environment(
    name: EnvironmentName,
    model: Annotated[
        str, typer.Option(help="Model that plays; tiny has random weights and is fast.")
    ] = "tiny",
    cases: Annotated[int, typer.Option(help="Cases to play.")] = 2,
    set: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Play and judge a few cases, to test every part of an environment."""
    from sparring.surfaces.cli import projects

    projects.try_out(name, model, cases, set or [], as_json=as_json)


@config.command("show")
def show_config(
    name: EnvironmentName,
    kind: Annotated[str, typer.Option(help="train or eval.")] = "train",
    set: Assignments = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also show settings with default values.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the settings with their source and their lock."""
    from sparring.surfaces.cli import projects

    projects.show_config(name, kind, set or [], with_defaults=all, as_json=as_json)


@app.command("chat", rich_help_panel=_MAIN)
def chat(
    target: Annotated[str, typer.Argument(help="An environment, or a run for its trained agent.")],
    model: Annotated[
        str | None, typer.Option(help="Model to use with an environment; default: the agent's own.")
    ] = None,
    set: Assignments = None,
    runs: RunsFolder = None,
) -> None:
    """Chat with an environment's agent, untrained or trained; tool calls are shown."""
    from sparring.surfaces.cli import projects

    raise typer.Exit(projects.chat(target, model, set or [], runs))


@app.command("doctor", rich_help_panel=_INSPECT)
def doctor(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Check this machine, and show a fix for everything that is missing."""
    from sparring.surfaces.cli import projects

    raise typer.Exit(projects.doctor(runs, as_json=as_json))


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Options of `sparring` itself."""
    if version:
        from importlib.metadata import version as installed

        print(installed("sparring"))
        raise typer.Exit


_ORDER = (
    "init",
    "check",
    "train",
    "prove",
    "ship",
    "chat",
    "eval",
    "audit",
    "view",
    "doctor",
    "limits",
    "mcp",
    "serve",
)
app.registered_commands.sort(key=lambda each: _ORDER.index(str(each.name)))


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
        if type(error).__module__.partition(".")[0] == "pydantic_core":
            sys.exit(show_error("InvalidInput", _field_errors(error), 2))
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


_OPTIONS = {"first_step": "step", "last_step": "step", "states": "state"}  # fields to options


def _field_errors(error: Any) -> str:
    """Return a validation error as lines of `--field: message`."""
    if not hasattr(error, "errors"):  # a serialization error
        return str(error)
    lines = []
    for problem in error.errors():
        names = [str(part) for part in problem["loc"] if not isinstance(part, int)]
        name = (names or [""])[-1]
        option = _OPTIONS.get(name, name).replace("_", "-")
        lines.append(f"--{option}: {problem['msg']}")
    return "\n".join(dict.fromkeys(lines))
