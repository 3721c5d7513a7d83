"""Options and arguments of the commands. Each is declared once, as a type."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.completion import complete_environments, complete_runs

# Options of several commands.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
EnvironmentName = Annotated[
    str,
    typer.Argument(
        help="Name of an environment, FILE, or FILE:NAME.", autocompletion=complete_environments
    ),
]
RunsFolder = Annotated[
    str | None, typer.Option("--runs", help="Folder that holds the runs; default: the project's.")
]
RunName = Annotated[
    str,
    typer.Argument(
        help="The run's id, a part of it, or its environment's name.", autocompletion=complete_runs
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Print the run's id and leave it running.")]
Launcher = Annotated[
    str | None, typer.Option(help="Launcher of the processes: local, slurm or manual.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as in beta=0.04, lora.r=8, config.FIELD=VALUE."),
]

# Options of `eval` and `train`. The defaults in the help texts are those of the settings.
Model = Annotated[
    str | None,
    typer.Option(help="Hub name, folder, tiny or smollm2; default: the agent's own model."),
]
Family = Annotated[str | None, typer.Option(help="Model family, if it is not recognised.")]
Temperature = Annotated[float | None, typer.Option(help="Sampling temperature; default: 0.8.")]
MaxCompletionLength = Annotated[
    int | None,
    typer.Option(help="Tokens per rollout after the prompt, tool results included; default: 1024."),
]
ToolRounds = Annotated[
    int | None, typer.Option(help="Rounds of tool calls before the agent must answer; default: 5.")
]

# Options of `eval`.
Endpoint = Annotated[
    list[str] | None,
    typer.Option(help="OpenAI-compatible URL that serves --model; may be repeated."),
]
Vllm = Annotated[
    str | None,
    typer.Option(help="URL of a vLLM server that serves --model, called with token ids."),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(
        help="Environment variable that holds the endpoint's key. Default: OPENAI_API_KEY for "
        "OpenAI, OPENROUTER_API_KEY for OpenRouter, no key for other servers."
    ),
]
Split = Annotated[str, typer.Option(help="training, validation or held-out.")]
Cases = Annotated[int | None, typer.Option(help="Maximum number of cases; default: all.")]
EvalRollouts = Annotated[
    int | None,
    typer.Option("--num-generations", "--rollouts", help="Rollouts per case; default: 1."),
]
InFlight = Annotated[
    int | None, typer.Option(help="Rollouts played at the same time; default: 64.")
]
ToolSeconds = Annotated[
    float | None, typer.Option(help="Deadline of a tool call in seconds; default: 30.")
]
EvalSeed = Annotated[int | None, typer.Option(help="Seed of the rollouts; default: 0.")]

# Options of `train`.
MaxSteps = Annotated[
    int | None, typer.Option(help="Optimizer steps; default: one pass over the cases.")
]
CasesPerBatch = Annotated[
    int | None, typer.Option(help="Cases in one batch of a process; default: 2.")
]
GradientAccumulationSteps = Annotated[
    int | None, typer.Option(help="Batches in one optimizer step; default: 2.")
]
GroupSize = Annotated[
    int | None,
    typer.Option("--num-generations", "--rollouts", help="Rollouts per case; default: 4."),
]
WarmStart = Annotated[
    str | None,
    typer.Option(
        help="Train on demonstrations first: a JSONL file, or a run with passing rollouts."
    ),
]
LearningRate = Annotated[
    float | None, typer.Option(help="Learning rate; default: 1e-5, or 1e-4 with LoRA.")
]
Lora = Annotated[bool | None, typer.Option("--lora", help="Train adapters only.")]
Sampling = Annotated[
    str | None,
    typer.Option(
        help="Sample with vLLM servers: the number to start, their addresses, as in "
        "http://HOST:PORT,http://HOST:PORT, or `joined` for those that join."
    ),
]
CheckpointSteps = Annotated[
    int | None, typer.Option(help="Steps between checkpoints; default: 50.")
]
ValidationCases = Annotated[
    int | None,
    typer.Option(help="Cases played before each checkpoint; default: up to 64; 0 for none."),
]
ReportTo = Annotated[list[str] | None, typer.Option(help="tensorboard, trackio, wandb or mlflow.")]
TrainSeed = Annotated[int | None, typer.Option(help="Seed of the run; default: 0.")]
Processes = Annotated[int | None, typer.Option(help="Processes on this host; default: 1.")]
Nodes = Annotated[int | None, typer.Option(help="Hosts that train together; default: 1.")]
Rendezvous = Annotated[
    str | None, typer.Option(help="HOST:PORT of one host, which all hosts reach.")
]
Prove = Annotated[
    bool, typer.Option("--prove/--no-prove", help="Prove the result on held-out cases at the end.")
]
