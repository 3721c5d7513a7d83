"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.completion import environments_there, runs_there

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
EnvironmentName = Annotated[
    str,
    typer.Argument(help="Name of an environment, or FILE:NAME.", autocompletion=environments_there),
]
RunsFolder = Annotated[
    str | None, typer.Option("--runs", help="Folder that holds the runs; default: the project's.")
]
RunName = Annotated[
    str,
    typer.Argument(
        help="Its id, a part of it, or its environment's name.", autocompletion=runs_there
    ),
]
Detach = Annotated[bool, typer.Option("--detach", help="Print the run's id and leave it running.")]
Launcher = Annotated[str | None, typer.Option(help="What starts the processes: local, or slurm.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as in beta=0.04, lora.r=8, config.FIELD=VALUE."),
]
