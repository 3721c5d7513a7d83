"""The house rules that can be counted, over the whole source tree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sparring"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted({*(ROOT / "tests").rglob("*.py")} - {*(ROOT / "tests" / "samples").rglob("*.py")})
PROSE = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
RETIRED = tomllib.loads((ROOT / "tests" / "retired_names.toml").read_text())
MOST_LINES = 60
LONG = 100  # lines of a module
OPEN = {"Environment.__init__"}  # its options are the fields of the environment's own Config

# Classes that share their name with a class of another module; each idea should have its own.
SHARED = {"Checkpoints", "Group", "Limits", "Outcome"}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def allowed(path: Path) -> list[str]:
    return list(RETIRED["allowed"].get(str(path.relative_to(ROOT)), []))


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


def words_of(name: str) -> set[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return set(spaced.lower().split("_"))


def test_no_identifier_uses_a_retired_name() -> None:
    found = []
    for path in [*MODULES, *TESTS]:
        names = [(path.stem, 1), *identifiers(parsed(path))]
        for name, line in names:
            for word in words_of(name) & RETIRED["identifiers"].keys():
                if word not in allowed(path):
                    found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("word", RETIRED["words"])
def test_no_prose_uses_a_retired_word(word: str) -> None:
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*MODULES, *TESTS, *PROSE]
        if word not in allowed(path)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def public_without_docstring(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_overload = any("overload" in ast.dump(each) for each in child.decorator_list)
            if child.name.startswith("_") or is_overload:
                continue
            if not ast.get_docstring(child):
                yield child
            if isinstance(child, ast.ClassDef):
                yield from public_without_docstring(child)


def test_every_public_function_and_class_has_a_docstring() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"  # type: ignore[attr-defined]
        for path in MODULES
        for node in public_without_docstring(parsed(path))
    ]
    assert not found, f"{len(found)}\n" + "\n".join(found)


def test_every_module_has_a_docstring() -> None:
    assert not [str(path) for path in MODULES if not ast.get_docstring(parsed(path))]


def test_no_function_is_longer_than_a_screen() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]
    assert not found, "\n".join(found)


def test_no_further_classes_share_a_name() -> None:
    modules: dict[str, set[Path]] = defaultdict(set)
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(path)
    assert {name for name, paths in modules.items() if len(paths) > 1} <= SHARED


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports() -> dict[str, set[str]]:
    """All imports, also those inside functions and for type checkers. The package's own
    `__init__` names the public API and is left out."""
    names = {module_name(path) for path in MODULES}
    graph: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        tree, own = parsed(path), module_name(path)
        if own == "sparring":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    graph[own].add(inner if inner in names else node.module)
            elif isinstance(node, ast.Import):
                graph[own] |= {alias.name for alias in node.names}
    return {name: {each for each in found if each in names} for name, found in graph.items()}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == name:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for name in list(graph):
        if name not in index:
            visit(name)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not cycles(imports())


def test_import_contracts_name_every_package() -> None:
    """A new package belongs to one plane or is a leaf, and the contracts hold it to that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    control, training, over_control, over_training, no_ml, leaves, *_ = contracts
    planes = {*control["source_modules"]}, {*training["source_modules"]}
    alone, shared = {*leaves["source_modules"]}, {"sparring.run_folder", "sparring.contracts"}
    packages = [f"sparring.{path.stem}" for path in SOURCE.iterdir() if path.name[0] not in "._"]
    packages.remove("sparring.py")  # the file py.typed
    assert sorted([*planes[0], *planes[1], *alone, *shared]) == sorted(packages)
    assert ({*training["forbidden_modules"]}, {*control["forbidden_modules"]}) == planes
    for contract, plane in zip((over_control, over_training), planes, strict=True):
        layers = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
        assert layers == plane | shared
    assert {*no_ml["source_modules"]} == planes[0] | shared | alone
    assert {*leaves["forbidden_modules"]} == planes[0] | planes[1] | {"sparring.run_folder"}


def test_no_public_function_takes_untyped_options() -> None:
    import inspect

    import sparring

    found = []
    for name in sparring.__all__:
        thing = getattr(sparring, name)
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            methods = [each for each in vars(thing) if not each.startswith("_")] + ["__init__"]
            called = [(f"{name}.{each}", getattr(thing, each)) for each in methods]
        else:
            called = [(name, thing)]
        for label, each in called:
            if not (inspect.isfunction(each) or inspect.ismethod(each)):
                continue
            for parameter in inspect.signature(each).parameters.values():
                is_open = parameter.kind is parameter.VAR_KEYWORD
                if is_open and "Any" in str(parameter.annotation) and label not in OPEN:
                    found.append(f"{label}(**{parameter.name}: {parameter.annotation})")
    assert not found, found


# Modules of more than 100 lines that have no test of their own yet; the list only gets shorter.
UNTESTED = {
    "jobs/ship/behaviour.py",
    "jobs/ship/playing.py",
    "jobs/ship/verifying.py",
}


def own_test(module: Path) -> Path:
    place = module.relative_to(SOURCE)
    return ROOT / "tests" / place.parent / f"test_{place.name}"


def test_modules_have_tests_of_their_own_and_long_ones_all_do() -> None:
    modules = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
    without = [path for path in modules if not own_test(path).exists()]
    assert len(without) <= 0.1 * len(modules), "\n".join(map(str, without))
    long = {path for path in without if len(path.read_text().splitlines()) > LONG}
    assert {str(path.relative_to(SOURCE)) for path in long} <= UNTESTED
