"""The base class of environments, and loading one from `FILE:NAME`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput, SparringError
from sparring.measures.declaration import Judge, Measure
from sparring.policies.families import Family
from sparring.suites import Suite

if TYPE_CHECKING:
    from agents import Agent


class Environment:
    """What an agent is trained on. Derive from it, and say what it is in the docstring.

    `measures` are rewarded with weight 1 each, or as `weights` says; weight 0 shows a
    measure without rewarding it. `family` declares the chat format of a model whose family
    Sparring does not know (docs/families.md).
    """

    name: ClassVar[str] = ""
    measures: Sequence[Measure | str | Judge] = ()
    weights: Mapping[str, float] = {}
    family: Family | None = None

    def agent(self) -> Agent[Any]:
        """The agent that is played, and later shipped."""
        raise NotImplementedError(f"{type(self).__name__} must define agent()")

    def suite(self) -> Suite:
        """The cases."""
        raise NotImplementedError(f"{type(self).__name__} must define suite()")

    def context(self, case: Case) -> Any:  # noqa: ARG002 - for overriding
        """A fresh context for one rollout; tools get it from the SDK, measures as `world`."""
        return None


@dataclass(frozen=True, slots=True)
class Parts:
    """What an environment is made of, checked."""

    agent: Agent[Any]
    suite: Suite
    measures: Sequence[Measure | str | Judge]
    context: Callable[[Case], Any] | None = None


def read_parts(environment: Environment) -> Parts:
    """Ask an environment for its parts; whatever its code does wrong is named by line."""
    from agents import Agent

    name = type(environment).__name__
    agent = _asked(environment, environment.agent)
    if not isinstance(agent, Agent):
        raise InvalidInput(f"{name}.agent() must return an agents.Agent, not {agent!r}")
    suite = _asked(environment, environment.suite)
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"{name}.suite() must return a Suite, not {suite!r}; "
            "make one with Suite.from_records([{'input': …, 'expected': …}])"
        )
    measures = environment.measures
    if isinstance(measures, Measure | str) or callable(measures):
        raise InvalidInput(f"{name}.measures must be a list or tuple: write measures = (one,)")
    has_context = type(environment).context is not Environment.context
    return Parts(agent, suite, measures, environment.context if has_context else None)


def _asked(environment: Environment, part: Callable[[], Any]) -> Any:
    try:
        return part()
    except (SparringError, NotImplementedError) as error:
        raise InvalidInput(str(error)) from error
    except Exception as error:
        file = inspect.getsourcefile(type(environment)) or ""
        where = f"{Path(file).name}{_last_frame_in(Path(file).resolve(), error)}"
        raise InvalidInput(
            f"{type(environment).__name__}.{part.__name__}() failed at {where}: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_environment(target: str) -> Environment:
    """The environment behind `FILE:NAME`: a subclass by its class name or `name`, or an
    instance. Runs the file, so only a worker or the owner's own process calls it."""
    file, _, name = target.rpartition(":")
    path = Path(file if file else name)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}; write FILE:NAME, as in my_agent.py:MyAgent")
    module = _run_file(path)
    found = dict(_candidates(module))
    if not file and len(found) == 1:
        return next(iter(found.values()))()
    if not file or name not in found:
        listed = ", ".join(sorted(found)) or "none: derive a class from sparring.Environment"
        raise InvalidInput(f"{path} has no environment {name if file else ''!r}; it has {listed}")
    return found[name]()


def _candidates(module: Any) -> list[tuple[str, Callable[[], Environment]]]:
    """Names under which environments of this file can be asked for, and how to make each."""
    found: list[tuple[str, Callable[[], Environment]]] = []
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


def _same(environment: Environment) -> Environment:
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
        spec.loader.exec_module(module)
    except Exception as error:
        frame = _last_frame_in(resolved, error)
        raise InvalidInput(
            f"{path}{frame} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return module


def _last_frame_in(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line
