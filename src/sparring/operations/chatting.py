"""Operation that prepares a chat with an environment's agent, on its base model or on a trained
checkpoint."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparring.contracts.command_line import SettingsOnCommandLine
from sparring.contracts.errors import AmbiguousRun, InvalidInput, RunNotFound
from sparring.contracts.specs import Frozen, PlaySettings, PolicySpec, Table
from sparring.contracts.training import TrainSpec
from sparring.installed import require_extra
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.resolution import resolve_run
from sparring.projects import find_project
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.layout import short_id
from sparring.runs.finding import find_run


class ChatWith(Frozen):
    """The agent to chat with."""

    target: str = Field(
        description="an environment, for its base model, or a run, for its trained model"
    )
    settings: Annotated[Table, SettingsOnCommandLine("eval", ("model",))] = Field(
        default_factory=dict
    )


class ChatSpec(Frozen):
    """Everything that the chat process needs."""

    target: str
    config: Table
    policy: PolicySpec
    play: PlaySettings
    about: str = Field(default="", description="the model that answers; shown first")


@operation(
    "chat.prepare",
    role=Role.OWNER,
    changes_state=False,
    forms=Forms(cli="chat", python="sparring.TrainResult.generate"),
)
def prepare_chat(request: ChatWith, caller: Caller) -> ChatSpec:
    """Prepare a chat with a run's best checkpoint, or with an environment's base model.

    In a run without validation, the last checkpoint answers.
    """
    require_extra("local", "`chat`")
    try:
        folder = find_run(caller.runs, request.target, kind="train")
    except AmbiguousRun:
        if not _is_environment(request.target, caller):
            raise
        return _base(request, caller)
    except RunNotFound:
        return _base(request, caller)
    if _is_environment(request.target, caller):
        is_trained = folder.read_spec().get("kind") == "train" and folder.summary.is_file()
        return _base(request, caller, trained=folder.id if is_trained else "")
    if folder.read_spec().get("kind") != "train":
        raise InvalidInput(f"run {folder.id} is not a training run; name its environment instead")
    if request.settings:
        raise InvalidInput(
            f"{', '.join(sorted(request.settings))}: run {folder.id} keeps the settings that it "
            "was trained with; to set others, chat with the base model: name the environment"
        )
    spec = TrainSpec.model_validate(folder.read_spec())
    if not spec.environment:
        raise InvalidInput(
            f"run {folder.id} was started from Python, and its agent is in your script; chat with "
            f'it there: sparring.TrainResult.load("{short_id(folder.id)}", agent=…).generate("…")'
        )
    checkpoints = list_checkpoints(folder.checkpoints)
    chosen = best_of(checkpoints) or (checkpoints[-1] if checkpoints else None)
    if chosen is None:
        raise InvalidInput(
            f"run {folder.id} has no checkpoint; wait for the first one, or resume the run"
        )
    play = {name: getattr(spec.settings, name) for name in PlaySettings.model_fields}
    policy = spec.policy.model_copy(update={"model": str(chosen.path)})
    return ChatSpec(
        target=spec.target,
        config=spec.config,
        policy=policy,
        play=PlaySettings(**play),
        about=f"{spec.environment}, trained: {chosen.path.name} of run {short_id(folder.id)}",
    )


def _base(request: ChatWith, caller: Caller, trained: str = "") -> ChatSpec:
    run_settings = resolve_run(request.target, "eval", request.settings, caller)
    about = f"{run_settings.name}, not trained"
    if trained:
        about += f"; for the trained model: `sparring chat {short_id(trained)}`"
    return ChatSpec(
        target=run_settings.environment.found.target,
        config=run_settings.checked.config,
        policy=run_settings.policy(),
        play=run_settings.checked.play,
        about=about,
    )


def _is_environment(target: str, caller: Caller) -> bool:
    """Return whether the target is the name of an environment. `find_run` resolves such a name to
    the newest run; a chat uses the environment."""
    return any(each.name == target for each in find_project(caller.folder).catalogue().environments)
