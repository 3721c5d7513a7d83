"""Declares `sparring ship`."""

from __future__ import annotations

from typing import Annotated

import typer

from sparring.surfaces.cli.options import AsJson, Detach, RunName, RunsFolder

To = Annotated[
    str, typer.Option(help="Folder to write; it must not exist. Default: shipped/ENVIRONMENT-ID.")
]
FormNames = Annotated[
    str,
    typer.Option(
        help="Forms, separated by commas: adapter, merged, gguf, ollama. Default: adapter (if "
        "trained with LoRA), merged and gguf."
    ),
]
Quantizations = Annotated[
    str,
    typer.Option(
        help="Quantisations of the GGUF files, separated by commas: f32, f16, q8_0, and with "
        "llama.cpp's quantiser q6_k, q5_k_m, q5_0, q4_k_m, q4_k_s, q4_0, q3_k_m, q2_k."
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare", help="Recommend the smallest GGUF file that is as good as the checkpoint."
    ),
]
CheckpointName = Annotated[
    str, typer.Option(help="Checkpoint to ship, as in step-50; default: the proved one.")
]
HeldOutCases = Annotated[
    int, typer.Option(help="Maximum number of held-out cases to play; 0 plays none.")
]
Rollouts = Annotated[int, typer.Option(help="Sampled rollouts per held-out case.")]
ValidationCases = Annotated[
    int, typer.Option(help="Validation cases that the checkpoint and each file play.")
]
Margin = Annotated[
    float, typer.Option(help="Loss of mean reward that must be excluded for the verdict 'equal'.")
]
ModelName = Annotated[
    str, typer.Option(help="The model's name on servers; default: the folder's name.")
]
Unproven = Annotated[
    bool, typer.Option("--unproven", help="Ship a checkpoint that is not proved better.")
]
LlamaCpp = Annotated[
    str, typer.Option(help="Folder of llama.cpp; default: LLAMA_CPP_PATH, PATH, or a package.")
]
Vllm = Annotated[
    bool,
    typer.Option("--vllm", help="Play merged model and adapter on vLLM, too; it must be on PATH."),
]
Hub = Annotated[
    str, typer.Option(help="Hub repository, as in me/model; alone, only lists the files.")
]
Upload = Annotated[
    bool, typer.Option("--upload", help="With --hub: upload, to a private repository.")
]
Register = Annotated[
    bool, typer.Option("--register", help="With --form ollama: create the model in Ollama.")
]
Try = Annotated[
    bool,
    typer.Option(
        "--try",
        help="Only try the model: a GGUF file plays ten validation cases on llama.cpp. A trial "
        "needs no proof and writes no folder.",
    ),
]
AcceptChanges = Annotated[
    bool,
    typer.Option("--accept-changes", help="Ship even if the environment's code has changed."),
]


def ship(
    run: RunName,
    to: To = "",
    form: FormNames = "",
    quant: Quantizations = "q8_0",
    compare: Compare = False,
    checkpoint: CheckpointName = "",
    cases: HeldOutCases = 200,
    rollouts: Rollouts = 1,
    validation_cases: ValidationCases = 24,
    margin: Margin = 0.05,
    name: ModelName = "",
    unproven: Unproven = False,
    llama_cpp: LlamaCpp = "",
    vllm: Vllm = False,
    hub: Hub = "",
    upload: Upload = False,
    register: Register = False,
    try_it: Try = False,
    accept_changes: AcceptChanges = False,
    detach: Detach = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write the trained model as adapter, merged weights and GGUF, each verified and played.

    Exits with 110 if a file is faulty, or if the chosen one is worse or no longer proved better.
    """
    from sparring.surfaces.cli import starting

    request = {
        "run": run,
        "to": to,
        "checkpoint": checkpoint,
        "forms": _listed(form),
        "quantizations": _listed(quant),
        "compare": compare,
        "cases": cases,
        "rollouts": rollouts,
        "validation_cases": validation_cases,
        "margin": margin,
        "trial": try_it,
        "name": name,
        "unproven": unproven,
        "llama_cpp": llama_cpp,
        "vllm": vllm,
        "hub": hub,
        "upload": upload,
        "register_with_ollama": register,
        "accept_changes": accept_changes,
    }
    raise typer.Exit(starting.ship(request, runs, detach=detach, as_json=as_json))


def _listed(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split(",") if part.strip()]
