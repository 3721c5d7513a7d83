"""`sparring`: the commands, and one place where errors are shown.

Only typer is imported here, and where options are declared. What a command needs is imported
when it runs, so that `sparring --help` answers at once.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from sparring.surfaces.cli import operator_commands, proof_commands
from sparring.surfaces.cli.options import (
    AsJson,
    Assignments,
    Detach,
    EnvironmentName,
    Launcher,
    RunName,
    RunsFolder,
)
from sparring.surfaces.cli.run_commands import runs as run_commands

app = typer.Typer(
    name="sparring",
    help="Train the agent you ship on the evals you already have: check, train, prove, ship.",
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
rollouts = typer.Typer(help="Read rollouts back.", no_args_is_help=True)
models = typer.Typer(help="Models for development.", no_args_is_help=True)
environments = typer.Typer(help="Environments of this project.", no_args_is_help=True)
config = typer.Typer(help="Settings, with their sources and locks.", no_args_is_help=True)
_FIRST, _LOOK, _OPERATE = "From agent to model", "Look closer", "Operate"
app.command("check", rich_help_panel=_FIRST)(proof_commands.check)
app.command("prove", rich_help_panel=_FIRST)(proof_commands.prove)
app.add_typer(run_commands, name="run", rich_help_panel=_LOOK)
app.add_typer(rollouts, name="rollout", rich_help_panel=_LOOK)
app.add_typer(environments, name="env", rich_help_panel=_LOOK)
app.add_typer(config, name="config", rich_help_panel=_LOOK)
app.add_typer(models, name="models", rich_help_panel=_LOOK)
app.add_typer(operator_commands.audits, name="audit", rich_help_panel=_OPERATE)
app.add_typer(operator_commands.plans, name="plan", rich_help_panel=_OPERATE)
app.command("mcp", rich_help_panel=_OPERATE)(operator_commands.mcp)
app.command("limits", rich_help_panel=_OPERATE)(operator_commands.limits)


@app.command("eval", rich_help_panel=_FIRST)
def evaluate(
    target: EnvironmentName,
    model: Annotated[
        str | None,
        typer.Option(help="Hub name, folder, tiny or smollm2; default: the agent's own model."),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(help="Play --model behind this OpenAI-compatible URL. Several may be given."),
    ] = None,
    vllm: Annotated[
        str | None, typer.Option(help="Play --model behind this vLLM server, by token ids.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="Environment variable that holds the endpoint's key.")
    ] = "OPENAI_API_KEY",
    family: Annotated[
        str | None, typer.Option(help="Chat format, where it is not recognised.")
    ] = None,
    split: Annotated[str, typer.Option(help="training, validation or held-out.")] = "validation",
    cases: Annotated[int | None, typer.Option(help="Play at most so many cases.")] = None,
    num_generations: Annotated[
        int | None, typer.Option("--num-generations", "--rollouts", help="Rollouts per case: 1.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature: 0.8.")] = None,
    max_completion_length: Annotated[
        int | None,
        typer.Option(help="Tokens per rollout behind the prompt, tool results included: 1024."),
    ] = None,
    tool_rounds: Annotated[
        int | None, typer.Option(help="Tool rounds before an answer is due: 5.")
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option(help="Rollouts played at the same time: 64.")
    ] = None,
    tool_seconds: Annotated[float | None, typer.Option(help="Deadline of a tool call: 30.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same rollouts.")] = None,
    set: Assignments = None,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Play an environment's cases, judge them, and show how the agent does."""
    from sparring.surfaces.cli import starting

    given = {
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
        "settings": starting.settings_from(given, set or []),
        "servers": starting.servers_from(model, endpoint, vllm, key_variable, family),
    }
    starting.evaluate(request, runs, detach=detach, as_json=as_json)


@app.command("train", rich_help_panel=_FIRST)
def train(
    target: EnvironmentName,
    model: Annotated[
        str | None,
        typer.Option(help="Hub name, folder, tiny or smollm2; default: the agent's own model."),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Chat format, where it is not recognised.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Optimizer steps; by default one pass over the cases.")
    ] = None,
    cases_per_batch: Annotated[int | None, typer.Option(help="Cases in one pass: 2.")] = None,
    gradient_accumulation_steps: Annotated[
        int | None, typer.Option(help="Passes in one step: 2.")
    ] = None,
    num_generations: Annotated[
        int | None, typer.Option("--num-generations", "--rollouts", help="Rollouts per case: 4.")
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(help="Learn first from a JSONL of demonstrations, or from a run that passed."),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="1e-5, or 1e-4 with LoRA.")] = None,
    lora: Annotated[bool | None, typer.Option("--lora", help="Train adapters only.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature: 0.8.")] = None,
    max_completion_length: Annotated[
        int | None, typer.Option(help="Tokens per rollout behind the prompt: 1024.")
    ] = None,
    tool_rounds: Annotated[
        int | None, typer.Option(help="Tool rounds before an answer: 5.")
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Steps between checkpoints: 50.")
    ] = None,
    validation_cases: Annotated[
        int | None, typer.Option(help="Cases played before each checkpoint: up to 64; 0 for none.")
    ] = None,
    report_to: Annotated[
        list[str] | None, typer.Option(help="tensorboard, trackio, wandb or mlflow.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same run.")] = None,
    set: Assignments = None,
    processes: Annotated[int | None, typer.Option(help="Processes on this host: 1.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Hosts that train together: 1.")] = None,
    rendezvous: Annotated[
        str | None, typer.Option(help="HOST:PORT where several hosts meet.")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="Prove it on held-out cases at the end.")
    ] = True,
    launcher: Launcher = None,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Train an environment's agent on its own measures, with GRPO; then prove it."""
    from sparring.surfaces.cli import starting

    given = {
        "max_steps": max_steps,
        "cases_per_batch": cases_per_batch,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "num_generations": num_generations,
        "warm_start": warm_start and {"source": warm_start},
        "learning_rate": learning_rate,
        "lora": lora,
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
    settings = starting.settings_from(given, set or [])
    request = {"environment": target, "settings": settings, "prove": prove}
    starting.train(request, runs, detach=detach, as_json=as_json)


@rollouts.command("list")
def list_rollouts(
    run: RunName,
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    count: Annotated[int, typer.Option(help="How many to show.")] = 20,
    ending: Annotated[
        str | None, typer.Option(help="Only those that ended like this, as in token_budget.")
    ] = None,
    min_reward: Annotated[float | None, typer.Option(help="Only with this or more.")] = None,
    max_reward: Annotated[float | None, typer.Option(help="Only with this or less.")] = None,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """List a page of a run's rollouts."""
    from sparring.surfaces.cli import reading

    query = {"run": run, "start": start, "count": count, "ending": ending}
    query |= {"min_reward": min_reward, "max_reward": max_reward}
    reading.list_page(query, runs, as_json=as_json)


@rollouts.command("show")
def show_rollout(
    run: RunName,
    rollout: Annotated[str, typer.Argument(help="The rollout's id, from `rollout list`.")],
    full: Annotated[bool, typer.Option("--full", help="Long messages whole.")] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show one rollout: what was said, which tools ran, and why it passed or failed."""
    from sparring.surfaces.cli import reading

    reading.show(run, rollout, runs, full=full, as_json=as_json)


@models.command("fetch")
def fetch_model(
    name: Annotated[str, typer.Argument(help="tiny or smollm2.")], as_json: AsJson = False
) -> None:
    """Build a development model once; `--model NAME` then finds it."""
    from sparring.surfaces.cli import reading

    reading.fetch(name, as_json=as_json)


@app.command("init", rich_help_panel=_FIRST)
def init(
    name: Annotated[str, typer.Argument(help="Name of the environment, as in my_agent.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="tool: questions that a tool answers. documents: questions over a folder of "
            "documents. game: a game over several turns.",
        ),
    ] = "tool",
    as_json: AsJson = False,
) -> None:
    """Write a working environment with a test, to start from."""
    from sparring.surfaces.cli import projects

    projects.init(name, start, as_json=as_json)


@environments.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List environments, found by reading source; none is run."""
    from sparring.surfaces.cli import projects

    projects.list_all(as_json=as_json)


@environments.command("show")
def show_environment(name: EnvironmentName, as_json: AsJson = False) -> None:
    """Show what an environment is, and the fields of its config."""
    from sparring.surfaces.cli import projects

    projects.show(name, as_json=as_json)


@environments.command("test")
def try_environment(
    name: EnvironmentName,
    model: Annotated[str, typer.Option(help="Model that plays; tiny talks nonsense.")] = "tiny",
    cases: Annotated[int, typer.Option(help="Cases to play.")] = 2,
    set: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Play a few cases and judge them, to see that all of an environment works."""
    from sparring.surfaces.cli import projects

    projects.try_out(name, model, cases, set or [], as_json=as_json)


@config.command("show")
def show_config(
    name: EnvironmentName,
    kind: Annotated[str, typer.Option(help="train or eval.")] = "train",
    set: Assignments = None,
    all: Annotated[bool, typer.Option("--all", help="Defaults as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every setting, where it came from, and who locked it."""
    from sparring.surfaces.cli import projects

    projects.show_config(name, kind, set or [], with_defaults=all, as_json=as_json)


@app.command("chat", rich_help_panel=_FIRST)
def chat(
    target: Annotated[str, typer.Argument(help="An environment, or a run: its trained agent.")],
    model: Annotated[str | None, typer.Option(help="Another model for an environment.")] = None,
    set: Assignments = None,
    runs: RunsFolder = None,
) -> None:
    """Talk to the base agent of an environment, or to a trained one; tool calls are shown."""
    from sparring.surfaces.cli import projects

    raise typer.Exit(projects.chat(target, model, set or [], runs))


@app.command("doctor", rich_help_panel=_LOOK)
def doctor(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """Say what is missing on this machine, each with the fix."""
    from sparring.surfaces.cli import projects

    raise typer.Exit(projects.doctor(runs, as_json=as_json))


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(installed("sparring"))
        raise typer.Exit


_IN_ORDER = ("init", "check", "train", "prove", "chat", "eval", "doctor", "limits", "mcp")
app.registered_commands.sort(key=lambda each: _IN_ORDER.index(str(each.name)))


def run() -> None:
    """The entry point: every error in one shape, with the exit code of its kind."""
    from sparring.contracts.errors import SparringError

    try:
        sys.exit(app(standalone_mode=False) or 0)
    except SparringError as error:
        sys.exit(show_error(error.name, str(error), error.exit_code))
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "pydantic_core":
            sys.exit(show_error("InvalidInput", _fields(error), 2))
        usage = getattr(error, "format_message", None)  # typer's own: an option that is wrong
        if usage is None:
            raise
        sys.exit(show_error("InvalidInput", usage(), 2) if usage() else 2)


def show_error(kind: str, message: str, code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": {"type": kind, "message": message, "exit_code": code}}))
    else:
        print(f"sparring: {message}", file=sys.stderr)
    return code


def _fields(error: Any) -> str:
    """A validation error as `field: what is wrong`, one line per field."""
    if not hasattr(error, "errors"):  # what could not be written down
        return str(error)
    lines = []
    for problem in error.errors():
        names = [str(part) for part in problem["loc"] if not isinstance(part, int)]
        lines.append(f"--{(names or [''])[-1].replace('_', '-')}: {problem['msg']}")
    return "\n".join(lines)
