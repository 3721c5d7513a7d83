"""Reads the classes, their bases, the parts of an environment and the imports of a Python file from
its syntax tree.

The file is not executed. If it cannot be read or parsed, the facts contain a problem.
"""

from __future__ import annotations

import ast
import inspect
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from sparring.contracts.environments import AGENT_PARTS, OTHER_PARTS
from sparring.contracts.specs import Frozen

_MAX_BYTES = 2_000_000
_PARTS = frozenset((*AGENT_PARTS, *OTHER_PARTS))
_VERBS = frozenset(
    f"sparring.{verb}"
    for verb in ("Trainer", "audit", "check", "evaluate", "prove", "ship", "train")
)


class ClassFacts(Frozen):
    """The facts of a class. `bases` are dotted names, resolved through the imports; a name without
    a dot is defined in this file or imported with `*`."""

    name: str
    line: int
    bases: tuple[str, ...]
    description: str = ""
    given_name: str = ""
    config_class: str = ""


class FileFacts(Frozen):
    """The facts of a file. `imports` maps local names to the dotted names that they refer to."""

    classes: tuple[ClassFacts, ...] = ()
    description: str = ""
    parts: dict[str, int] = Field(
        default_factory=dict,
        description="lines at which the parts of an environment without a class are bound",
    )
    runs_a_verb: bool = Field(
        default=False, description="whether importing it calls a verb, such as sparring.train"
    )
    imports: dict[str, str] = Field(default_factory=dict)
    star_imports: tuple[str, ...] = ()
    modules: tuple[str, ...] = Field(
        default=(), description="dotted names of all imports, also inside functions"
    )
    problem: str = ""
    problem_line: int = 0


def read_facts(path: Path) -> FileFacts:
    """Return the facts of a file; never raises."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return FileFacts(problem="is not a regular file")
        if status.st_size > _MAX_BYTES:
            return FileFacts(problem=f"is larger than {_MAX_BYTES:,} bytes")
        return _facts(ast.parse(path.read_bytes(), filename=str(path)))
    except SyntaxError as error:
        return FileFacts(problem=f"does not parse: {error.msg}", problem_line=error.lineno or 0)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return FileFacts(problem=f"cannot be read: {error or type(error).__name__}")


def _facts(tree: ast.Module) -> FileFacts:
    imports: dict[str, str] = {}
    stars: list[str] = []
    classes: list[ast.ClassDef] = []
    for node in _top_level(tree.body):
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds `a`; `import a.b as c` binds `c` to `a.b`.
                bound = alias.asname or alias.name.partition(".")[0]
                imports[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    stars.append(module)
                else:
                    joint = "" if module.endswith(".") else "."
                    imports[alias.asname or alias.name] = f"{module}{joint}{alias.name}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            # An alias of a base class: `Base = sparring.Environment`.
            for target in node.targets:
                if isinstance(target, ast.Name) and (dotted := _dotted(node.value)):
                    imports.setdefault(target.id, _resolved(dotted, imports))
    return FileFacts(
        classes=tuple(_class_facts(each, imports) for each in classes),
        description=_first_paragraph(tree),
        parts={name: line for name, line in _bound(tree.body) if name in _PARTS},
        runs_a_verb=any(_resolved(each, imports) in _VERBS for each in _called(tree.body)),
        imports=imports,
        star_imports=tuple(stars),
        modules=tuple(sorted(_imported(tree))),
    )


def _imported(tree: ast.Module) -> set[str]:
    """Return the dotted names of all imports, also inside functions; `x` replaces `*`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            names |= {f"{module}{joint}{alias.name}".replace("*", "x") for alias in node.names}
    return names


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of the module, including those inside `if`, `try` and `with`."""
    statements: list[ast.stmt] = []
    for node in body:
        statements.append(node)
        for block in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                for inner in getattr(node, block, []):
                    nested = inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                    statements += _top_level(nested)
    return statements


def _class_facts(node: ast.ClassDef, imports: dict[str, str]) -> ClassFacts:
    bases = [
        _dotted(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases
    ]
    return ClassFacts(
        name=node.name,
        line=node.lineno,
        bases=tuple(_resolved(base, imports) for base in bases if base),
        description=_first_paragraph(node),
        given_name=_given_name(node),
        config_class=_config_class(node),
    )


def _first_paragraph(node: ast.ClassDef | ast.Module) -> str:
    docstring = ast.get_docstring(node) or ""
    return inspect.cleandoc(docstring).partition("\n\n")[0].replace("\n", " ")


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield the names of variables and functions of the module, with their lines."""
    for node in _top_level(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((each.id, node.lineno) for each in targets if isinstance(each, ast.Name))


def _called(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the dotted names of what is called when the module is imported, except in blocks such
    as `if __name__ == "__main__"`."""
    for node in body:
        if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign):
            yield from (_dotted(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))


def _given_name(node: ast.ClassDef) -> str:
    for statement in node.body:
        value: Any = None
        if isinstance(statement, ast.Assign):
            names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
            value = statement.value if "name" in names else None
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = statement.value if statement.target.id == "name" else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ""


def _config_class(node: ast.ClassDef) -> str:
    """Return the name of the nested class `Config`, or of the class that is assigned to `Config` or
    to Atropos's `env_config_cls`."""
    for statement in node.body:
        if isinstance(statement, ast.ClassDef) and statement.name == "Config":
            return f"{node.name}.Config"
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {each.id for each in targets if isinstance(each, ast.Name)}
            if names & {"Config", "env_config_cls"} and statement.value is not None:
                return _dotted(statement.value)
    return ""


def _dotted(node: ast.expr) -> str:
    """Return an expression of the form `a.b.c` as text; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _resolved(dotted: str, imports: dict[str, str]) -> str:
    first, dot, rest = dotted.partition(".")
    return f"{imports[first]}{dot}{rest}" if first in imports else dotted
