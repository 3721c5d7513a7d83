"""A command is made from its request: a field is an option, wherever the request is declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field

from sparring.contracts.command_line import OnCommandLine
from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import Frozen, PlaySettings, Table
from sparring.contracts.training import TrainSettings
from sparring.operations.operation import REGISTRY, Caller, Operation, Role
from sparring.operations.shipping import StartShip, start_ship
from sparring.surfaces import verbs
from sparring.surfaces.cli import starting
from sparring.surfaces.cli.commands import command_of
from sparring.surfaces.cli.main import app
from sparring.surfaces.tools.catalogue import Tool
from sparring.surfaces.web import openapi
from tests.surfaces.cli.terminal import EVAL, copy_samples


class LongerShip(StartShip):
    """A shipment with one more field."""

    watermark: str = Field(default="none", description="text that every model card carries")


def options_of(command: Any) -> dict[str, Any]:
    return {name: each for each in command.params for name in each.opts}


def leaves(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    if (inner := getattr(command, "commands", None)) is None:
        yield path, command
    else:
        for name, each in inner.items():
            yield from leaves(each, *path, name)


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_a_new_field_of_a_request_is_on_every_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    longer: Operation[Any, Any] = replace(start_ship, request=LongerShip)
    monkeypatch.setitem(REGISTRY, longer.name, longer)
    option = options_of(command_of(starting._starts(longer)))["--watermark"]
    assert (option.help, option.default) == ("Text that every model card carries.", "none")
    text = "text that every model card carries"
    assert Tool(longer).input_schema()["properties"]["watermark"]["description"] == text
    schemas = openapi.document()["components"]["schemas"]
    assert schemas["LongerShip"]["properties"]["watermark"]["description"] == text
    assert f"| `watermark` | `--watermark` | {text} |" in verbs.page()
    requests: list[Any] = []
    noting = replace(longer, run=lambda request, _: requests.append(request) or request)
    noting.ask({"run": "mine", "watermark": "ours"}, Caller(Role.OWNER, Path("nowhere")))
    assert requests[0].watermark == "ours"


class Request(Frozen):
    """One field of each kind."""

    run: str
    kind: Literal["a", "b"] = Field(default="a", description="kind")
    first: Annotated[int | None, OnCommandLine("--step", help="only this step")] = None
    last: Annotated[int | None, OnCommandLine("--step")] = None
    is_open: Annotated[bool, OnCommandLine("--open")] = Field(default=True, description="open")
    is_quick: bool = False
    forms: Annotated[tuple[str, ...], OnCommandLine("--form", is_listed=True)] = ("x", "y")
    tags: Annotated[tuple[str, ...], OnCommandLine("-t --tag")] = ()
    secret: Annotated[str, OnCommandLine(is_hidden=True)] = "kept"
    value: Any = None
    settings: Table = Field(default_factory=dict)


def typed(*words: str) -> Request:
    """Return the request that a command gets for these words."""
    seen: list[Request] = []

    def note(request: Request) -> None:
        seen.append(request)

    command_of(note).main(list(words), standalone_mode=False)
    (request,) = seen
    return request


def test_without_options_a_request_has_its_defaults() -> None:
    assert typed("mine") == Request(run="mine")


def test_every_kind_of_field_can_be_typed() -> None:
    words = ["mine", "--kind", "b", "--step", "3", "--no-open", "--is-quick", "--form", "P, q"]
    words += ["-t", "one", "--tag", "two", "--value", "[1]", "--set", "lora.r=8"]
    assert typed(*words) == Request(
        run="mine",
        kind="b",
        first=3,
        last=3,
        is_open=False,
        is_quick=True,
        forms=("p", "q"),
        tags=("one", "two"),
        value=[1],
        settings={"lora": {"r": 8}},
    )
    assert typed("mine", "--value", "a word").value == "a word"


def test_a_refusal_names_the_option_that_was_typed() -> None:
    with pytest.raises(InvalidInput, match=r"^--kind: Input should be 'a' or 'b'$"):
        typed("mine", "--kind", "c")
    with pytest.raises(InvalidInput, match=r"^--step: Input should be"):
        COMMANDS["rollout", "list"].main(["mine", "--step", "-1"], standalone_mode=False)
    with pytest.raises(InvalidInput, match=r"^--state: Input should be 'queued'"):
        COMMANDS["run", "list"].main(["--state", "lost"], standalone_mode=False)


def test_help_names_choices_separators_and_repetitions() -> None:
    options = options_of(command_of(lambda_of(Request)))
    assert options["--kind"].help == "Kind: a or b."
    assert options["--form"].help.endswith("several are separated by commas.")
    assert options["-t"].help.endswith("may be repeated.")
    assert options["--step"].help == "Only this step."
    assert "--secret" not in options


def lambda_of(request: type[Frozen]) -> Any:
    return starting._starts(replace(start_ship, request=request))


def test_every_command_can_be_made_and_every_option_says_what_it_is_for() -> None:
    assert len(COMMANDS) <= 44
    for path, command in COMMANDS.items():
        assert command.callback is not None
        for option in command.params:
            assert (option.help or "").endswith("."), (path, option.name)


@pytest.mark.parametrize(("kind", "settings"), [("eval", PlaySettings), ("train", TrainSettings)])
def test_options_of_settings_show_their_defaults_and_have_none(kind: str, settings: Any) -> None:
    options = options_of(COMMANDS[kind,])
    for name, default in (("temperature", 0.8), ("max-turns", 6), ("tool-timeout", 30.0)):
        assert settings.model_fields[name.replace("-", "_")].default == default
        assert options[f"--{name}"].help.endswith(f"default: {default:g}.")
        assert options[f"--{name}"].default is None
    name = "--num-generations" if kind == "train" else "--rollouts"
    least = settings.model_fields["num_generations"].default
    assert options[name].help == f"Rollouts per case; default: {least}."


def test_a_check_keeps_its_own_option_where_a_setting_has_the_same_name() -> None:
    options = options_of(COMMANDS["check",])
    assert options["--rollouts"].default == 16
    assert options["--num-generations"].opts == ["--num-generations"]
    assert "--max-steps" not in options


def completed(path: tuple[str, ...], option: str, incomplete: str) -> list[str]:
    command = COMMANDS[path]
    (parameter,) = [each for each in command.params if option in (each.name, *each.opts)]
    context = command.make_context(path[-1], [], resilient_parsing=True)
    return [each.value for each in parameter.shell_complete(context, incomplete)]


def test_names_of_environments_runs_settings_and_choices_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy_samples(tmp_path / "porter", monkeypatch))
    assert completed(("train",), "environment", "be") == ["bell"]
    assert completed(("run", "list"), "--env", "be") == ["bell"]
    assert completed(("run", "stop"), "run", EVAL[:-1]) == [EVAL]
    assert completed(("run", "compare"), "runs", EVAL[:-1]) == [EVAL]
    assert completed(("train",), "--set", "max_ste") == ["max_steps="]
    assert completed(("eval",), "--split", "h") == ["held-out"]
    assert completed(("run", "list"), "--state", "st") == ["starting", "stopping", "stopped"]
