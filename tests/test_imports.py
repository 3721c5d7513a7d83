"""The control plane stays light, and every package that is imported is declared."""

import ast
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sparring

HEAVY = ("torch", "transformers", "trl", "agents", "datasets", "accelerate")
ROOMS = ("contracts", "run_folder", "settings", "projects", "runs", "operations", "surfaces")
LOOK = f"print([name for name in {HEAVY} if name in sys.modules])"
EVERY_MODULE = """
import importlib, pkgutil, sys, sparring
for room in ROOMS:
    package = importlib.import_module(f"sparring.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name != "sparring.surfaces.agents_tools":  # it is for whoever has that SDK anyway
            importlib.import_module(module.name)
"""
EVERY_OPERATION = """
import sys
from pathlib import Path
from pydantic import ValidationError
from sparring.contracts.errors import SparringError
from sparring.operations.operation import all_operations
from sparring.operations.operation import Caller, Role

here = Path(sys.argv[1])
caller = Caller(Role.OWNER, here / "runs", folder=here)
usual = {"environment": "shop", "run": "gone", "rollout": "x", "name": "shop2", "settings": {}}
wrong = {"environment": "shop", "name": "nobody", "settings": {"beta": "wrong"}}
for name, operation in all_operations().items():
    starts = name.endswith(".start") or name in ("models.fetch", "env.test", "plan.make")
    words = wrong if starts else usual
    fields = operation.request.model_fields
    try:
        operation(operation.request(**{k: v for k, v in words.items() if k in fields}), caller)
    except (SparringError, ValidationError):
        pass
assert len(all_operations()) >= 30
"""


def test_no_module_of_the_control_plane_imports_anything_heavy():
    code = EVERY_MODULE.replace("ROOMS", repr(ROOMS)) + LOOK
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_operation_imports_anything_heavy_while_it_runs(tmp_path):
    (tmp_path / "shop.py").write_text(
        'from sparring import Environment\nclass Shop(Environment):\n    """Sells."""\n'
    )
    command = [sys.executable, "-c", EVERY_OPERATION + LOOK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"


# Packages that come with a declared one, which is named.
BROUGHT = {
    "anyio": "starlette",
    "huggingface_hub": "transformers",
    "mcp_types": "mcp",
    "pydantic_core": "pydantic",
    "safetensors": "transformers",
}
NAMED_IN_ERRORS = {
    "bitsandbytes",
    "cyllama",
    "deepspeed",
}  # an error names them where they are needed


def imported_packages() -> set[str]:
    found = set()
    for file in Path(sparring.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"sparring"}


def names_of(requirements: list[str]) -> Iterator[str]:
    for each in requirements:
        yield re.split(r"[^\w.-]", each)[0].lower().replace("_", "-")


def test_every_package_that_is_imported_is_declared_or_comes_with_one_that_is():
    file = Path(sparring.__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    extras = project["optional-dependencies"]
    users = [each for name, extra in extras.items() if name != "dev" for each in extra]
    declared = set(names_of([*project["dependencies"], *users]))
    installed = packages_distributions()
    for name in imported_packages() - NAMED_IN_ERRORS:
        packages = set(names_of(installed.get(name, [name])))
        if name in BROUGHT:
            assert BROUGHT[name] in declared
            assert packages & set(names_of(requires(BROUGHT[name]) or []))
        else:
            assert packages & declared, f"{name} is imported, but pyproject.toml does not name it"


def installed_with(wanted: list[str], extras: dict[str, list[str]]) -> set[str]:
    """Every package that pip installs for these requirements, by the metadata of what is here."""
    todo, found = [Requirement(line) for line in wanted], set[tuple[str, str]]()
    while todo:
        requirement = todo.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in found:
                continue
            found.add((requirement.name, extra))
            if requirement.name == "sparring":
                lines = extras.get(extra, [])
            else:
                lines = requires(requirement.name) or []
            inner = [Requirement(line) for line in lines]
            todo += [r for r in inner if not r.marker or r.marker.evaluate({"extra": extra})]
    return {canonicalize_name(name) for name, _ in found}


def test_constraints_pin_every_package_that_make_venv_installs():
    root = Path(sparring.__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = installed_with([*project["dependencies"], "sparring[dev]"], extras)
    lines = (root / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    assert wanted - pinned == {"sparring", "torch"}  # the Makefile pins torch


def test_the_page_of_dependencies_names_every_package_that_is_declared():
    root = Path(sparring.__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {name for each in lists for name in names_of(each) if not name.startswith("types-")}
    page = (root / "docs" / "dependencies.md").read_text().lower()
    missing = {name for name in declared if not re.search(rf"\b{re.escape(name)}\b", page)}
    assert not missing


def test_every_public_name_can_be_had():
    import sparring

    for name in sparring.__all__:
        assert getattr(sparring, name) is not None
    with pytest.raises(AttributeError, match="nobody"):
        _ = sparring.nobody


def test_type_checkers_see_every_public_name() -> None:
    import sparring

    tree = ast.parse(Path(sparring.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [alias.asname for node in ast.walk(block) for alias in getattr(node, "names", ())]
    assert sorted(imported) == sparring.__all__
    assert len(sparring.__all__) <= 25


@pytest.mark.parametrize("module", ["sparring", "sparring.errors", "sparring.measures"])
def test_a_public_module_imports_nothing_heavy(module):
    code = f"import sys, {module};" + LOOK
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_answers_at_once():
    """0.25 s on a quiet machine. Counted in CPU seconds, in turns with a bare interpreter that
    imports typer: what runs beside it slows both."""

    def cpu_seconds(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = "import typer, typer.main, typer.rich_utils"
    ours = "from sparring.surfaces.cli.main import run; run()"
    turns = [(cpu_seconds(bare), cpu_seconds(ours)) for _ in range(7)]
    least_bare, least_ours = (min(column) for column in zip(*turns, strict=True))
    print({"bare": round(least_bare, 3), "help": round(least_ours, 3)})
    assert least_ours < max(0.25, 1.5 * least_bare)


def test_nothing_draws_with_matplotlib() -> None:
    """Reports are drawn by the browser."""
    package = Path(sparring.__file__).parent
    found = [path for path in package.rglob("*.py") if "matplotlib" in path.read_text()]
    assert not found
