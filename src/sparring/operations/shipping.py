"""Operation that starts a shipment: a run that writes a trained model to a folder, verified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.command_line import RUN, OnCommandLine
from sparring.contracts.errors import InvalidInput, NotPermitted, NotProved
from sparring.contracts.kinds import QUANTIZATIONS, Form, ShipSpec
from sparring.contracts.specs import Frozen
from sparring.contracts.summaries import ProveSummary
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import FOR_OWNERS, Caller, Forms, Role, operation
from sparring.operations.proving import training_spec, with_current_code
from sparring.operations.resolution import fields_for, refuse_over_budget, revalidate
from sparring.operations.run_views import active_proof, standing_of
from sparring.operations.starting import Started, start
from sparring.projects import find_project
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import is_plain_name, shipped_name, short_id
from sparring.run_folder.proofs import proof_to_ship
from sparring.runs.finding import find_run
from sparring.runs.history import read_history

SHIPPED = "shipped"
_TRIAL = {"forms": (Form.GGUF,), "cases": 0, "validation_cases": 10, "unproven": True}


class StartShip(Frozen):
    """The training run to ship, the forms of its model, and the folder to write."""

    run: Annotated[str, RUN] = Field(
        description="a training run: its id, the beginning or end of its id, or its environment's "
        "name"
    )
    to: str = Field(
        default="",
        description="folder to write, which must not exist; default: shipped/ENVIRONMENT-ID. "
        "Operators give a name, and the folder is shipped/NAME",
    )
    checkpoint: str = Field(
        default="", description="checkpoint to ship, as in step-50; default: the proved one"
    )
    forms: Annotated[tuple[Form, ...], OnCommandLine("--form", is_listed=True)] = Field(
        default=(),
        description="forms of the model: adapter, merged, gguf, ollama; default: adapter (if "
        "trained with LoRA), merged and gguf",
    )
    quantizations: Annotated[tuple[str, ...], OnCommandLine("--quant", is_listed=True)] = Field(
        default=("q8_0",),
        description="quantizations of the GGUF files: "
        f"{', '.join(QUANTIZATIONS[:3])}, and with llama.cpp's quantizer "
        f"{', '.join(QUANTIZATIONS[3:])}",
    )
    compare: bool = Field(
        default=False, description="choose the smallest GGUF file that is as good as the checkpoint"
    )
    cases: int | None = Field(
        default=200, ge=0, description="maximum number of held-out cases; 0 plays none"
    )
    rollouts: int = Field(
        default=1, ge=1, le=256, description="number of sampled rollouts per held-out case"
    )
    validation_cases: int = Field(
        default=24,
        ge=0,
        le=1000,
        description="number of validation cases to play with the checkpoint and with each exported "
        "file",
    )
    margin: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="loss of mean reward that the interval of a file's difference must exclude for "
        "the verdict equal",
    )
    trial: Annotated[bool, OnCommandLine("--try")] = Field(
        default=False,
        description="only try the model: a GGUF file plays ten validation cases on llama.cpp's "
        "server, and no folder is written; needs no proof",
    )
    name: str = Field(
        default="", description="the model's name on servers; default: the folder's name"
    )
    unproven: bool = Field(
        default=False,
        description='ship without a proof with the verdict "better"; the model cards state this',
    )
    llama_cpp: str = Field(
        default="",
        description="folder of llama.cpp; default: LLAMA_CPP_PATH, PATH, or a package",
        json_schema_extra=FOR_OWNERS,
    )
    vllm: bool = Field(
        default=False,
        description="also play the merged model and the adapter on vLLM; the program `vllm` must "
        "be on the PATH",
        json_schema_extra=FOR_OWNERS,
    )
    hub: str = Field(
        default="",
        description="repository on the Hugging Face Hub, as in me/model; without `upload`, the "
        "files are only listed",
        json_schema_extra=FOR_OWNERS,
    )
    upload: bool = Field(
        default=False,
        description="upload to a private repository on the hub",
        json_schema_extra=FOR_OWNERS,
    )
    register_with_ollama: Annotated[bool, OnCommandLine("--register")] = Field(
        default=False,
        description="create the model in Ollama; needs the form ollama",
        json_schema_extra=FOR_OWNERS,
    )
    accept_changes: bool = Field(
        default=False,
        description="ship the run although its code has changed since the training",
        json_schema_extra=FOR_OWNERS,
    )


@operation(
    "ship.start",
    role=Role.OPERATOR,
    changes_state=True,
    starts=True,
    forms=Forms(
        cli="ship",
        tool="ship_run",
        python="sparring.ship",
    ),
)
def start_ship(request: StartShip, caller: Caller) -> Started:
    """Write the trained model as adapter, merged weights and GGUF, each verified and played.

    The shipment is a run in the background. Each file must give the prompts and log-probabilities
    of the checkpoint, and both play the same cases. If a file is faulty, the shipment ends with
    the verdict "refused" and writes no folder. Only a proved checkpoint is shipped, unless
    `unproven` is set.
    """
    if request.trial:
        request = request.model_copy(update=_TRIAL)
    folder = find_run(caller.runs, request.run, kind="train")
    spec = training_spec(folder)
    _refuse_for_operators(request, folder, caller)
    _refuse_unknown(request)
    llama_cpp = _absolute(request.llama_cpp, caller)
    request = request.model_copy(update={"llama_cpp": llama_cpp})
    if spec.settings.quantization and Form.ADAPTER in request.forms:
        raise InvalidInput(
            f"run {folder.id} was trained on a 4-bit base (quantization=true), and its adapter "
            "gives another model on the unquantized base; use --form merged,gguf"
        )
    spec = with_current_code(folder, spec, verb="ship", accept_changes=request.accept_changes)
    proof = _proof(folder, request)
    budget = caller.budget()
    own = {
        **spec.fields_of_later_runs(),
        **fields_for(ShipSpec, request),
        "run": folder.id,
        "proof": proof.run if proof else "",
        "checkpoint": request.checkpoint or (Path(proof.checkpoint).name if proof else ""),
        "to": str(_place(request, folder, spec, caller)),
        "hours": budget.hours,
    }
    shipment = ShipSpec(**own)
    if not caller.is_owner:
        revalidate(shipment, caller)
    elif budget.rollouts is not None:
        refuse_over_budget(shipment, budget, find_project(caller.folder).file)
    return start(shipment, caller, runs_at_once=budget.runs_at_once)


def _proof(folder: RunFolder, request: StartShip) -> ProveSummary | None:
    """Return the proof to ship with. Raise NotProved if one is needed and there is none, with the
    proof that has not ended if there is one."""
    try:
        return proof_to_ship(folder, request.checkpoint, is_needed=not request.unproven)
    except NotProved:
        proof = active_proof(folder, checkpoint=request.checkpoint, split=Split.HELD_OUT.value)
        if proof is None:
            raise
        raise NotProved(
            f"run {folder.id} is not proved yet: its proof {proof.id} is {standing_of(proof)}. "
            f"`sparring run wait {short_id(proof.id)}` waits for its verdict; or ship the run "
            "with --unproven, which the model cards state"
        ) from None


def _absolute(path: str, caller: Caller) -> str:
    """Resolve a path against the caller's folder. An empty path stays empty."""
    return str(caller.folder.resolve() / Path(path).expanduser()) if path else ""


def _place(request: StartShip, folder: RunFolder, spec: TrainSpec, caller: Caller) -> Path:
    root = find_project(caller.folder).root
    default = shipped_name(spec.environment, folder.id)
    if caller.is_owner and request.to:
        place = Path(_absolute(request.to, caller))
    else:
        place = root.resolve() / SHIPPED / (request.to or default)
    if not request.trial and (place.exists() or place.is_symlink()):
        raise InvalidInput(
            f"{place} exists already, and a shipment never overwrites; choose another folder with "
            "--to, or remove this one"
        )
    return place


def _refuse_for_operators(request: StartShip, folder: RunFolder, caller: Caller) -> None:
    """Raise NotPermitted if an operator sets an option of the owner, writes outside shipped/, or
    ships the run of another caller."""
    if caller.is_owner:
        return
    if (
        any((request.hub, request.upload, request.register_with_ollama, request.llama_cpp))
        or request.accept_changes
        or request.vllm
    ):
        raise NotPermitted(
            "only the owner may upload, register with Ollama, choose programs, or accept changes"
        )
    if request.to and not is_plain_name(request.to):
        raise NotPermitted(
            f"operators give a name, such as my-model, and the folder is {SHIPPED}/my-model"
        )
    author = read_history(folder).history.author
    if author != caller.name:
        raise NotPermitted(
            f"run {folder.id} is {author or 'somebody else'}'s, and {caller.name} ships only its "
            "own runs; ask the owner"
        )


def _refuse_unknown(request: StartShip) -> None:
    if unknown := [each for each in request.quantizations if each not in QUANTIZATIONS]:
        raise InvalidInput(
            f"unknown quantisation {unknown[0][:40]!r}; choose from {', '.join(QUANTIZATIONS)}"
        )
    if request.upload and not request.hub:
        raise InvalidInput("--upload needs --hub OWNER/NAME")
    if request.trial and (request.to or request.hub or request.register_with_ollama):
        raise InvalidInput(
            "--try writes no folder and publishes nothing; leave out --to, --hub and --register"
        )
    if request.name and not is_plain_name(request.name):
        raise InvalidInput("a model's name consists of letters, digits, ., - and _")
    if request.register_with_ollama and Form.OLLAMA not in request.forms:
        raise InvalidInput("--register needs --form ollama")
