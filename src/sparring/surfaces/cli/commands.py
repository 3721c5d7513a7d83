"""Generates commands from requests: arguments, options, defaults, help and errors.

A command is a function. Its parameter that is a request becomes one option for each field, its
parameter of type `Owner` or `Reader` becomes `--runs`, and its other parameters are options that
only a terminal has, declared with typer.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, cast, get_args

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from rich.console import Console
from typer.core import TyperCommand

from sparring.contracts.command_line import SHOWN, OnCommandLine, SettingsOnCommandLine
from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject, JsonSchema
from sparring.contracts.specs import Table
from sparring.operations.operation import Caller, Operation
from sparring.settings.assignments import assigned
from sparring.settings.fields import MODELS, Kind
from sparring.settings.layers import defaults
from sparring.surfaces.cli.callers import owner, reader
from sparring.surfaces.cli.completion import COMPLETERS, complete_settings, completer_of
from sparring.surfaces.cli.page import Part, print_json, show

Owner = Annotated[Caller, owner]
Reader = Annotated[Caller, reader]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Detach = Annotated[bool, typer.Option("--detach", help="Print the run's id and leave it running.")]
RunsFolder = Annotated[
    str | None, typer.Option("--runs", help="Folder that holds the runs; default: the project's.")
]
_TYPES = {"boolean": bool, "integer": int, "number": float, "array": list[str]}
_SET = "set"  # the parameter of `--set`


def command_of(function: Callable[..., None]) -> TyperCommand:
    """Return the command that calls a function."""
    signature = inspect.signature(function, eval_str=True)
    filled: dict[str, Callable[[JsonObject], Any]] = {}
    own: list[inspect.Parameter] = []
    common: dict[str, inspect.Parameter] = {}
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            form = _Form(annotation)
            own += form.parameters()
            filled[name] = form.fill
        elif annotation in (Owner, Reader):
            common["caller"] = keyword("caller", RunsFolder, None)
            filled[name] = partial(_caller, get_args(annotation)[1])
        elif annotation in (Detach, AsJson):
            common[name] = keyword(name, annotation, False)
        else:
            own.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def command(**given: Any) -> None:
        function(
            **{
                name: filled[name](given) if name in filled else given[name]
                for name in signature.parameters
            }
        )

    own += [common[name] for name in ("detach", "caller", "as_json") if name in common]
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    return cast("TyperCommand", typer.main.get_command(app))


def with_request(
    function: Callable[..., None],
    request: type[BaseModel],
    options: Iterable[inspect.Parameter] = (),
) -> Callable[..., None]:
    """Set a function's signature, so that its command takes the fields of an operation's request,
    and any further options."""
    signature = inspect.signature(function, eval_str=True)
    named = {
        name: each
        for name, each in signature.parameters.items()
        if each.kind is not each.VAR_KEYWORD
    }
    named["request"] = named["request"].replace(annotation=request)
    own = [each.replace(kind=each.KEYWORD_ONLY) for each in options]
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*named.values(), *own]
    )
    return function


def shows(
    operation: Operation[Any, Any],
    *,
    exit_code: int = 0,
    waiting: str = "",
    then: Callable[[Any], Mapping[str, str]] | None = None,
) -> Callable[[Callable[..., Iterable[Part]]], Callable[..., None]]:
    """Return a decorator for a function that returns what is printed of an operation's result,
    which makes it a command. The function gets the result and its own options.

    With `exit_code`, the command exits with it if the result is not `ok`. The text `waiting` is
    shown until the result is there. `then` returns the next steps, which JSON carries as `next`.
    """

    def declare(render: Callable[..., Iterable[Part]]) -> Callable[..., None]:
        def command(request: Any, caller: Reader, as_json: AsJson, **own: Any) -> None:
            with Console(stderr=True).status(waiting) if waiting else nullcontext():
                result = operation(request, caller)
            is_ok = exit_code == 0 or result.ok
            if as_json:
                if then is not None:
                    result = {**json.loads(result.model_dump_json()), "next": dict(then(result))}
                print_json(result)
            else:
                show(render(result, **own), Console())
            if not is_ok:
                raise typer.Exit(exit_code)

        _, *options = inspect.signature(render, eval_str=True).parameters.values()
        return with_request(command, operation.request, options)

    return declare


def _caller(make: Callable[[str | None], Caller], given: JsonObject) -> Caller:
    return make(given["caller"])


def keyword(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    """Return a parameter that is passed by its name."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


class FieldOption:
    """A field as an argument or an option of the command line.

    `label` is its name there, empty if it has none.
    """

    def __init__(self, name: str, field: FieldInfo, schema: JsonSchema) -> None:
        self.mark = _mark_of(field) or SHOWN
        self.is_required = field.is_required()
        self.is_argument = self.mark.is_argument or (self.is_required and not self.mark.names)
        self.parameter = name
        self.names = self.mark.names.split() or [f"--{name.replace('_', '-')}"]
        long = next(each for each in self.names if each.startswith("--"))
        self.label = name if self.is_argument else long
        if self.mark.is_hidden:
            self.label = ""
        elif field.annotation == Table:
            self.label = "--set"
        self.panel: str | None = None
        self.description = self.mark.help or field.description or ""
        self.default = None if self.is_required else field.get_default(call_default_factory=True)
        if self.mark.default is not None:
            self.default = self.mark.default
        members = _members(schema["properties"][name], schema.get("$defs", {}))
        self._types = [each.get("type", "") for each in members]
        kinds = [*members, *(each.get("items", {}) for each in members)]
        items = [_members(each, schema.get("$defs", {}))[0] for each in kinds]
        self._choices = [str(choice) for each in items for choice in each.get("enum", ()) if choice]

    def declared(self) -> inspect.Parameter:
        """Return the option as a parameter with typer's annotation."""
        type_: Any = next((_TYPES[each] for each in _TYPES if each in self._types), str)
        default = getattr(self.default, "value", self.default)
        if type_ == list[str]:
            default = ",".join(default or ()) if self.mark.is_listed else None
            type_ = str if self.mark.is_listed else type_
        complete = COMPLETERS.get(self.mark.completes)
        if self._choices and complete is None:
            complete = completer_of(self._choices)
        declared: Any = typer.Argument(help=self._help(), autocompletion=complete)
        if not self.is_argument:
            names = list(self.names)
            if default is True:
                names = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
            declared = typer.Option(
                *names, help=self._help(), autocompletion=complete, rich_help_panel=self.panel
            )
        if self.is_required:
            return keyword(self.parameter, Annotated[type_, declared])
        return keyword(self.parameter, Annotated[type_ | None, declared], default)

    def value(self, given: Any) -> Any:
        """Return the field's value for what was typed."""
        if self.mark.is_listed:
            return [part.strip().lower() for part in given.split(",") if part.strip()]
        return assigned([f"value={given}"], {})["value"] if self._types == [""] else given

    def _help(self) -> str:
        text = self.description[:1].upper() + self.description[1:]
        if any(choice not in text for choice in self._choices):
            text += f": {', '.join(self._choices[:-1])} or {self._choices[-1]}"
        if self.mark.is_listed:
            text += "; several are separated by commas"
        elif "array" in self._types and not self.is_argument:
            text += "; may be repeated"
        return f"{text}."


class _Form:
    """The options of a request, and the request made from their values."""

    def __init__(self, request: type[BaseModel]) -> None:
        self._request = request
        self._settings: dict[str, FieldOption] = {}
        self._table = ""
        self._panel: str | None = None
        schema = request.model_json_schema()
        options = {}
        for name, field in request.model_fields.items():
            if field.annotation == Table:
                self._table = name
            else:
                options[name] = FieldOption(name, field, schema)
        self._labels = {name: option.label for name, option in options.items()}
        self._options = {name: each for name, each in options.items() if not each.mark.is_hidden}
        first_of = {option.label: option for option in reversed(self._options.values())}
        for option in self._options.values():
            option.parameter = first_of[option.label].parameter
        if self._table:
            taken = {name for option in self._options.values() for name in option.names}
            for mark in request.model_fields[self._table].metadata:
                if isinstance(mark, SettingsOnCommandLine):
                    self._settings, self._panel = _setting_options(mark, taken), mark.title

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of the command."""
        found: dict[str, inspect.Parameter] = {}
        for option in (*self._options.values(), *self._settings.values()):
            found.setdefault(option.parameter, option.declared())
        if self._table:
            assignments = typer.Option(
                "--set",
                help="Any other setting, as in beta=0.04, lora.r=8, config.FIELD=VALUE.",
                autocompletion=complete_settings,
                rich_help_panel=self._panel,
            )
            found[_SET] = keyword(_SET, Annotated[list[str] | None, assignments], None)
        return list(found.values())

    def fill(self, given: JsonObject) -> BaseModel:
        """Return the request with the values that were typed. Raises InvalidInput with the option
        whose value is refused."""
        typed = {name: (option, given[option.parameter]) for name, option in self._options.items()}
        values = {
            name: option.value(value)
            for name, (option, value) in typed.items()
            if value is not None
        }
        if self._table:
            settings = {name: given[name] for name in self._settings if given[name] is not None}
            values[self._table] = assigned(given[_SET] or [], settings)
        try:
            return self._request.model_validate(values)
        except ValidationError as error:
            raise InvalidInput(refusal_of(error, self._labels)) from error


def refusal_of(error: ValidationError, labels: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a validation error as lines of `--option: message`."""
    lines = []
    for problem in error.errors():
        names = [str(part) for part in problem["loc"] if not isinstance(part, int)]
        label = labels.get(names[0]) if names else ""
        if label is None:
            label = f"--{names[-1].replace('_', '-')}"
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{label}: {message}".removeprefix(": "))
    return "\n".join(dict.fromkeys(lines))


def _setting_options(mark: SettingsOnCommandLine, taken: Collection[str]) -> dict[str, FieldOption]:
    """Return the options of the settings that a request's table shows. A name that the request
    itself uses is not one of a setting."""
    kind = cast("Kind", mark.kind)
    values = defaults(kind, ())
    options = {}
    for model in MODELS[kind]:
        schema = model.model_json_schema()
        for name, field in model.model_fields.items():
            if _mark_of(field) is not None:
                options[name] = FieldOption(name, field, schema)
    chosen = {name: options[name] for name in mark.names or options}
    for name, option in chosen.items():
        option.names = [each for each in option.names if each not in taken]
        option.is_required = option.is_argument = False
        option.panel = mark.title
        option.default = None  # a setting has a value only if one is typed
        value = values[name]
        is_unset = value is None or value is False or value in ([], {})
        if not is_unset and "default:" not in option.description:
            shown = f"{value:g}" if isinstance(value, float) else value
            option.description += f"; default: {shown}"
    return chosen


def _mark_of(field: FieldInfo) -> OnCommandLine | None:
    return next((each for each in field.metadata if isinstance(each, OnCommandLine)), None)


def _members(schema: JsonSchema, definitions: JsonSchema) -> list[JsonSchema]:
    """Return the members of a union, with references resolved."""
    if reference := schema.get("$ref"):
        schema = definitions[reference.rpartition("/")[2]]
    parts = schema.get("anyOf", ())
    return [each for part in parts for each in _members(part, definitions)] or [schema]
