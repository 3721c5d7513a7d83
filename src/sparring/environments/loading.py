"""Loads an environment from `FILE:NAME`. Loading runs the file, so only the processes of a run, the
describing subprocess and the owner's own process do it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.environments.environment import Environment
from sparring.environments.modules import environment_of
from sparring.tracebacks import error_with_line


def load_environment(target: str, config: Mapping[str, Any] | None = None) -> Environment:
    """Return the environment at `FILE:NAME`. NAME is the class name or `name` of a subclass, a
    variable that holds an instance, or the stem of a file that is an environment without a class;
    `FILE` alone suffices if the file has one environment."""
    factory = _find(target)
    try:
        return factory(**(config or {}))
    except SparringError:
        raise
    except Exception as error:
        advice = "; its __init__ must take **config and pass it on to super().__init__(**config)"
        raise InvalidInput(
            f"{target} cannot be created: {error_with_line(error)}"
            f"{advice if isinstance(error, TypeError) else ''}"
        ) from error


def load_class(target: str) -> type[Environment]:
    """Return the class at `FILE:NAME`, or the class of the instance there."""
    factory = _find(target)
    if inspect.isclass(factory) and issubclass(factory, Environment):
        return factory
    return type(load_environment(target))


def _find(target: str) -> Callable[..., Environment]:
    file, _, name = target.rpartition(":")
    path = Path(file if file else name)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; write FILE:NAME, as in my_agent.py:MyAgent")
    factories = dict(_candidates(_run_file(path)))
    distinct = {id(factory): factory for factory in factories.values()}
    if not file and len(distinct) == 1:
        return next(iter(distinct.values()))
    if not factories:
        raise InvalidInput(
            f"{path} has no environment; define agent, suite and measures in it, or derive a class "
            "from sparring.Environment"
        )
    listed = ", ".join(sorted(factories))
    if not file:
        raise InvalidInput(f"{path} has several environments: {listed}; write {path}:NAME")
    if name not in factories:
        raise InvalidInput(f"{path} has no environment {name!r}; it has {listed}")
    return factories[name]


def _candidates(module: Any) -> list[tuple[str, Callable[..., Environment]]]:
    """Return the names of the module's environments, each with the callable that creates it."""
    candidates: list[tuple[str, Callable[..., Environment]]] = []
    for key, value in vars(module).items():
        if isinstance(value, Environment):
            candidates.append((key, partial(_existing_instance, value)))
        elif (
            inspect.isclass(value)
            and issubclass(value, Environment)
            and value.__module__ == module.__name__
        ):
            candidates.append((value.__name__, value))
            if value.name:
                candidates.append((value.name, value))
    if not candidates and (made := environment_of(module)) is not None:
        candidates.append((made.__name__, made))
    return candidates


def _existing_instance(environment: Environment, **config: Any) -> Environment:
    if config:
        name = type(environment).__name__
        raise SettingError(
            f"the target is an instance of {name}; to set {', '.join(config)}, name the class: "
            f"FILE:{name}"
        )
    return environment


def _run_file(path: Path) -> Any:
    """Import a file as the module STEM, or by its dotted name if it has relative imports. Its
    folder is on `sys.path`, as with `python FILE`."""
    resolved = path.resolve()
    _refuse_installed_name(resolved)
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    spec = importlib.util.spec_from_file_location(resolved.stem, resolved)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[resolved.stem] = module
    try:
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            if "relative import" not in str(error):
                raise
            return _import_from_package(resolved)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"{path}{_last_line_in(resolved, error)} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    return module


def _last_line_in(path: Path, error: BaseException) -> str:
    """Return `:LINE`, the innermost line of this file in the traceback, or an empty string."""
    if isinstance(error, SyntaxError) and Path(error.filename or "").resolve() == path:
        return f":{error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _refuse_installed_name(file: Path) -> None:
    """Raise InvalidInput if importing the file would hide an installed package of the same name."""
    places = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    hidden = [place / name for place in places for name in (f"{file.stem}/__init__.py", file.name)]
    is_installed = any(file.is_relative_to(place) for place in places)
    if not is_installed and any(each.is_file() for each in hidden):
        raise InvalidInput(
            f"{file.name} has the name of an installed package, {file.stem!r}, which it would "
            "hide; rename the file"
        )


def _import_from_package(file: Path) -> Any:
    """Import a file by its dotted name, which starts at the topmost folder with `__init__.py`."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.modules.pop(file.stem, None)
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(parts))
