"""What a conversation in the terminal is to be with: an environment's agent, base or trained."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.errors import InvalidInput, RunNotFound
from sparring.contracts.specs import Frozen, PlaySettings, PolicySpec
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.settling import settle
from sparring.projects import find_project
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.ids import short_id
from sparring.runs.finding import find_run


class ChatWith(Frozen):
    target: str = Field(description="an environment for its base agent, a run for the trained one")
    settings: dict[str, Any] = Field(default_factory=dict)


class ChatSpec(Frozen):
    target: str
    config: dict[str, Any]
    policy: PolicySpec
    play: PlaySettings
    about: str = Field(default="", description="who answers, for the first line")


@operation(
    "chat.prepare",
    role=Role.OWNER,
    changes_state=False,
    forms=Forms(cli="chat", python="sparring.TrainResult.generate"),
)
def prepare_chat(request: ChatWith, caller: Caller) -> ChatSpec:
    """Find what to talk to: the best checkpoint of a run, or an environment's own model."""
    try:
        folder = find_run(caller.runs, request.target, kind="train")
    except RunNotFound:
        return _base(request, caller)
    if _is_environment(request.target, caller):
        is_trained = folder.read_spec().get("kind") == "train" and folder.summary.is_file()
        return _base(request, caller, trained=folder.id if is_trained else "")
    if folder.read_spec().get("kind") != "train":
        raise InvalidInput(f"run {folder.id} is no training; name its environment instead")
    spec = TrainSpec.model_validate(folder.read_spec())
    if not spec.environment:
        raise InvalidInput(
            f"run {folder.id} was started from Python, and its agent is in that script; talk to it "
            f'there: sparring.TrainResult.load("{short_id(folder.id)}", agent=…).generate("…")'
        )
    there = list_checkpoints(folder.checkpoints)
    chosen = best_of(there) or (there[-1] if there else None)
    if chosen is None:
        raise InvalidInput(f"run {folder.id} has no checkpoint yet; wait for its first one")
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
    settled = settle(request.target, "eval", request.settings, caller)
    about = f"{settled.found.name}, not trained"
    if trained:
        about += f"; the trained one is `sparring chat {short_id(trained)}`"
    return ChatSpec(
        target=settled.found.target,
        config=settled.config,
        policy=settled.policy(),
        play=PlaySettings.model_validate(settled.own()),
        about=about,
    )


def _is_environment(target: str, caller: Caller) -> bool:
    """A run is found by the name of its environment too; here that name is the environment's."""
    return any(each.name == target for each in find_project(caller.folder).catalogue().environments)
