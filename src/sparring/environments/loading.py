"""Loading an environment from `FILE:NAME`. This runs the file: only a worker, a describing
subprocess or the owner's own process does it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.environments.environment import Environment, last_line_in


def load_environment(target: str, config: Mapping[str, Any] | None = None) -> Environment:
    """The environment behind `FILE:NAME`: a subclass by its class name or `name`, or an
    instance."""
    made = _chosen(target)
    try:
        return made(**(config or {}))
    except SparringError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{target} cannot be made: {type(error).__name__}: {error}; an __init__ of its own "
            "must take **config and hand it on to super().__init__(**config)"
        ) from error


def load_class(target: str) -> type[Environment]:
    """The class behind `FILE:NAME`, for describing it."""
    made = _chosen(target)
    if inspect.isclass(made) and issubclass(made, Environment):
        return made
    return type(load_environment(target))


def _chosen(target: str) -> Callable[..., Environment]:
    file, _, name = target.rpartition(":")
    path = Path(file if file else name)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; write FILE:NAME, as in my_agent.py:MyAgent")
    found = dict(_candidates(_run_file(path)))
    kinds = {id(made): made for made in found.values()}
    if not file and len(kinds) == 1:
        return next(iter(kinds.values()))
    if not file or name not in found:
        listed = ", ".join(sorted(found)) or "none: derive a class from sparring.Environment"
        raise InvalidInput(f"{path} has no environment {name if file else ''!r}; it has {listed}")
    return found[name]


def _candidates(module: Any) -> list[tuple[str, Callable[..., Environment]]]:
    """Names under which environments of this file can be asked for, and how to make each."""
    found: list[tuple[str, Callable[..., Environment]]] = []
    for key, value in vars(module).items():
        if isinstance(value, Environment):
            found.append((key, partial(_same, value)))
        elif (
            inspect.isclass(value)
            and issubclass(value, Environment)
            and value.__module__ == module.__name__
        ):
            found.append((value.__name__, value))
            if value.name:
                found.append((value.name, value))
    return found


def _same(environment: Environment, **config: Any) -> Environment:
    if config:
        raise SettingError(
            f"{type(environment).__name__} is an instance, made in its file; name the class "
            f"instead to set {', '.join(config)}"
        )
    return environment


def _run_file(path: Path) -> Any:
    """Import a file under its stem, with its folder importable, as `python FILE` would."""
    resolved = path.resolve()
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
            return _as_part_of_its_package(resolved)
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"{path}{last_line_in(resolved, error)} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    return module


def _as_part_of_its_package(file: Path) -> Any:
    """By its dotted name, from above the topmost folder with an `__init__.py`."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.modules.pop(file.stem, None)
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(parts))
