"""`sparring`: the commands, and one place where errors are shown.

Only typer is imported here. What a command needs is imported when it runs, so that
`sparring --help` answers at once.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="sparring",
    help="Train the agent you ship on the evals you already have: check, train, prove, ship.",
    invoke_without_command=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
rollouts = typer.Typer(help="Read rollouts back.", no_args_is_help=True)
models = typer.Typer(help="Models for development.", no_args_is_help=True)
app.add_typer(rollouts, name="rollout")
app.add_typer(models, name="models")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
RunsFolder = Annotated[str, typer.Option("--runs", help="Folder that holds the runs.")]


@app.command("eval")
def evaluate(
    target: Annotated[
        str | None, typer.Argument(help="FILE:NAME of the environment, as in my_agent.py:MyAgent.")
    ] = None,
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
        int, typer.Option("--num-generations", "--rollouts", help="Rollouts per case.")
    ] = 1,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.8,
    max_completion_length: Annotated[
        int, typer.Option(help="Tokens per rollout behind the prompt, tool results included.")
    ] = 1024,
    tool_rounds: Annotated[int, typer.Option(help="Tool rounds before an answer is due.")] = 5,
    in_flight: Annotated[int, typer.Option(help="Rollouts played at the same time.")] = 64,
    tool_seconds: Annotated[float, typer.Option(help="Deadline of a tool call.")] = 30.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rollouts.")] = 0,
    resume: Annotated[
        str | None,
        typer.Option(help="Go on with this run, follow it if it runs, show it if it is done."),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume although the file has changed.")
    ] = False,
    runs: RunsFolder = "runs",
    as_json: AsJson = False,
) -> None:
    """Play an environment's cases, judge them, and show how the agent does."""
    from sparring.surfaces.cli import evaluating

    play = {
        "num_generations": num_generations,
        "temperature": temperature,
        "max_completion_length": max_completion_length,
        "tool_rounds": tool_rounds,
        "in_flight": in_flight,
        "tool_seconds": tool_seconds,
        "seed": seed,
    }
    policy = evaluating.policy_options(model, endpoint, vllm, key_variable, family)
    caller = evaluating.owner(runs)
    if resume is not None:
        started = evaluating.resume(resume, accept_changes, caller)
    else:
        request = {"target": target, "split": split, "cases": cases, "policy": policy, "play": play}
        started = evaluating.start(request, caller)
    evaluating.follow(started, caller, as_json=as_json)


@app.command("train")
def train(
    target: Annotated[
        str | None, typer.Argument(help="FILE:NAME of the environment, as in my_agent.py:MyAgent.")
    ] = None,
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
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, as in beta=0.04, lora.r=8, engine.X=Y."),
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes on this host.")] = 1,
    nodes: Annotated[int, typer.Option(help="Hosts that train together.")] = 1,
    rendezvous: Annotated[
        str | None, typer.Option(help="HOST:PORT where several hosts meet.")
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Bring this host into that run; its folder is shared.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="Go on from its newest checkpoint; follow it if it runs."),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume although code or cases have changed.")
    ] = False,
    runs: RunsFolder = "runs",
    as_json: AsJson = False,
) -> None:
    """Train an environment's agent on its own measures, with GRPO."""
    from sparring.surfaces.cli import evaluating, training

    caller = evaluating.owner(runs)
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
    }
    if join is not None or resume is not None:
        other = {"target": target, "model": model, "family": family, **given}
        training.refuse_settings_beside("--join" if join else "--resume", other, set or [])
    if join is not None:
        started = training.join(join, caller)
    elif resume is not None:
        started = training.resume(resume, accept_changes, caller)
    else:
        request = {
            "target": target,
            "policy": {"model": model, "family": family},
            "settings": training.settings_from(given, set or []),
            "processes": processes,
            "nodes": nodes,
            "rendezvous": rendezvous,
        }
        started = training.start(request, caller)
    training.follow(started, caller, as_json=as_json)


@rollouts.command("list")
def list_rollouts(
    run: Annotated[str, typer.Argument(help="The run's id, or the beginning of it.")],
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    count: Annotated[int, typer.Option(help="How many to show.")] = 20,
    runs: RunsFolder = "runs",
    as_json: AsJson = False,
) -> None:
    """List a page of a run's rollouts."""
    from sparring.surfaces.cli import reading

    reading.list_page(run, start, count, runs, as_json=as_json)


@rollouts.command("show")
def show_rollout(
    run: Annotated[str, typer.Argument(help="The run's id, or the beginning of it.")],
    rollout: Annotated[str, typer.Argument(help="The rollout's id, from `rollout list`.")],
    full: Annotated[bool, typer.Option("--full", help="Long messages whole.")] = False,
    runs: RunsFolder = "runs",
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


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(installed("sparring"))
        raise typer.Exit


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
    return "\n".join(
        f"--{'.'.join(map(str, problem['loc'][-1:])).replace('_', '-')}: {problem['msg']}"
        for problem in error.errors()
    )
