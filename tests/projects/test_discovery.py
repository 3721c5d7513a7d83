"""Finding environments by reading source, whatever else is in it."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparring.contracts.environments import FoundEnvironment
from sparring.contracts.errors import InvalidInput
from sparring.projects import find_project
from sparring.projects.discovery import find_environments, installed_environments

PLAIN = '''
from sparring import Environment

class Plain(Environment):
    """A plain one.

    With more to it."""

    class Config(Environment.Config):
        pass
'''
RAISING = "raise RuntimeError('imported')\n"
Install = Callable[..., list[FoundEnvironment]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package whose files would raise, and returns what is found of it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(entry: str, **files: str) -> list[FoundEnvironment]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RAISING + text)
        info = tmp_path / "shipped_tasks-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped-tasks\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sparring.environments]\nnice = {entry}\n")
        return [each for each in installed_environments() if each.name == "nice"]

    yield installed
    assert not [name for name in sys.modules if name.startswith("shipped_")]


def test_the_entry_point_gives_the_name_and_the_source_gives_the_rest(install: Install) -> None:
    (found,) = install("shipped_one:Plain", shipped_one=PLAIN)
    assert (found.name, found.class_name, found.package) == ("nice", "Plain", "shipped-tasks")
    assert (found.description, found.config_class) == ("A plain one.", "Plain.Config")
    assert Path(found.file).name == "shipped_one.py"
    assert Path(found.file).read_text().splitlines()[found.line - 1].startswith("class Plain")


@pytest.mark.parametrize("place", ["shipped_two/tasks.py", "shipped_two/tasks/x.py"])
def test_a_module_inside_a_package_is_found_by_its_path(install: Install, place: str) -> None:
    module = place.removesuffix(".py").replace("/", ".")
    name = place.removesuffix(".py").replace("/", "__")
    (found,) = install(f"{module}:Plain", **{"shipped_two/" + "_" * 2 + "init": "", name: PLAIN})
    assert found.file.endswith(place)


def test_a_package_is_found_by_the_file_that_makes_it_one(install: Install, tmp_path: Path) -> None:
    for folder in ("shipped_three", "shipped_three/inner"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(RAISING + PLAIN)
    (found,) = install("shipped_three.inner:Plain")
    assert found.file.endswith("shipped_three/inner/__init__.py")


@pytest.mark.parametrize(
    "entry", ["shipped_four:Other", "shipped_gone:Plain", "shipped_four.deeper:Plain", "sys:Plain"]
)
def test_an_entry_point_that_leads_nowhere_is_skipped(install: Install, entry: str) -> None:
    assert install(entry, shipped_four=PLAIN) == []


PLAIN_DISCOVERY = '''
from sparring import Environment

class Plain(Environment):
    """A plain one.

    With more to it."""
'''


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def names(folder: Path) -> dict[str, str]:
    found = find_environments(folder, [folder])
    return {each.name: each.class_name for each in found.environments}


def test_the_name_is_the_classs_own_or_the_files(tmp_path):
    write(
        tmp_path,
        plain=PLAIN_DISCOVERY,
        other=PLAIN_DISCOVERY.replace('"""A', 'name = "mine"\n    """A'),
    )
    assert names(tmp_path) == {"plain": "Plain", "mine": "Plain"}


def test_description_line_and_config_class_are_read(tmp_path):
    write(tmp_path, one="""
        import sparring
        class One(sparring.Environment):
            '''Does
            one thing.'''
            class Config(sparring.Environment.Config):
                pass
    """)  # fmt: skip
    (found,) = find_environments(tmp_path, [tmp_path]).environments
    assert (found.description, found.line, found.config_class) == (
        "Does one thing.", 3, "One.Config"
    )  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "from sparring import Environment as Env\nclass E(Env): pass",
        "import sparring as s\nclass E(s.Environment): pass",
        "import sparring.environments\nclass E(sparring.environments.Environment): pass",
        "from sparring.environments.environment import Environment\nclass E(Environment): pass",
        "from sparring import *\nclass E(Environment): pass",
        "import sparring\nBase = sparring.Environment\nclass E(Base): pass",
        "try:\n    from sparring import Environment\nexcept ImportError:\n    pass\n"
        "class E(Environment): pass",
        "from sparring import Environment\nclass E(Environment[int]): pass",
        "from sparring import Environment\nif True:\n    class E(Environment): pass",
    ],
)
def test_every_way_to_name_the_base_class_is_understood(tmp_path, source):
    write(tmp_path, e=source)
    assert names(tmp_path) == {"e": "E"}


def test_subclasses_are_followed_over_files_folders_and_reexports(tmp_path):
    write(
        tmp_path,
        _bases="from sparring import Environment\nclass Base(Environment): pass",
        package__inner="import sys\nfrom _bases import Base\nclass Middle(Base): pass",
        leaf="from package import Passed\nclass Leaf(Passed):\n    '''A leaf.'''",
        package__near="from . import inner\nclass Near(inner.Middle):\n    '''Near.'''",
    )
    (tmp_path / "package" / "__init__.py").write_text("from .inner import Middle as Passed")
    assert names(tmp_path) == {"leaf": "Leaf", "near": "Near"}


def test_files_and_classes_that_start_with_an_underscore_are_skipped(tmp_path):
    write(
        tmp_path,
        _hidden=PLAIN_DISCOVERY,
        shown=PLAIN_DISCOVERY + "\nclass _Inner(Plain): '''No.'''\n",
    )
    assert names(tmp_path) == {"shown": "Plain"}


def test_duplicates_are_reported_with_both_places(tmp_path):
    write(tmp_path, a__plain=PLAIN_DISCOVERY, b__plain=PLAIN_DISCOVERY)
    found = find_environments(tmp_path, [tmp_path])
    assert len(found.environments) == 2
    assert all("give it another `name`" in each.message for each in found.problems)
    assert {Path(each.file).parent.name for each in found.problems} == {"a", "b"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def broken(:\n", "does not parse"),
        (b"x = '\xff\xfe'\n", "does not parse"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 5000, "does not parse"),
        (b"-" * 100_000 + b"1", ""),
        (b"x" * 3_000_000, "larger than"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_and_hides_nothing(tmp_path, content, message):
    (tmp_path / "bad.py").write_bytes(content)
    write(tmp_path, plain=PLAIN_DISCOVERY)
    found = find_environments(tmp_path, [tmp_path])
    assert [each.name for each in found.environments] == ["plain"]
    (problem,) = found.problems
    assert message in problem.message
    assert problem.file.endswith("bad.py")


def test_classes_that_inherit_from_each_other_end(tmp_path):
    write(tmp_path, a="from b import B\nclass A(B): pass", b="from a import A\nclass B(A): pass")
    assert names(tmp_path) == {}


def test_environments_of_atropos_are_listed_as_needing_a_port(tmp_path):
    write(tmp_path, theirs="""
        from atroposlib.envs.base import BaseEnv, BaseEnvConfig
        class MathEnv(BaseEnv):
            name = "math"
            env_config_cls = BaseEnvConfig
    """)  # fmt: skip
    (found,) = find_environments(tmp_path, [tmp_path]).environments
    assert found.needs_port
    assert "coming_from_atropos" in found.description
    assert found.config_class == "BaseEnvConfig"
    with pytest.raises(InvalidInput, match=r"written for Atropos; docs/coming_from_atropos\.md"):
        find_project(tmp_path).find("math")


def test_virtual_environments_and_runs_are_not_looked_into(tmp_path):
    write(
        tmp_path,
        venv__lib__x=PLAIN_DISCOVERY,
        runs__y=PLAIN_DISCOVERY,
        node_modules__z=PLAIN_DISCOVERY,
        here=PLAIN_DISCOVERY,
    )
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert names(tmp_path) == {"here": "Plain"}


def test_an_installed_package_is_found_by_its_entry_point_without_importing_it(
    tmp_path, monkeypatch
):
    package = tmp_path / "site" / "shipped"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tasks.py").write_text(PLAIN_DISCOVERY)
    info = tmp_path / "site" / "shipped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[sparring.environments]\nshipped = shipped.tasks:Plain\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "empty").mkdir()
    (found,) = find_environments(tmp_path / "empty", [tmp_path / "empty"]).environments
    assert (found.name, found.package, found.description) == ("shipped", "shipped", "A plain one.")
    assert "shipped" not in sys.modules


def test_a_changed_file_is_read_again(tmp_path):
    cache = tmp_path / ".sparring" / "cache.json"
    write(tmp_path, plain=PLAIN_DISCOVERY)
    find_environments(tmp_path, [tmp_path], cache)
    write(tmp_path, plain=PLAIN_DISCOVERY.replace("A plain one", "Another"))
    (found,) = find_environments(tmp_path, [tmp_path], cache).environments
    assert found.description == "Another."


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1, "files": {"x": 3}}'])
def test_a_spoilt_cache_is_only_a_cache(tmp_path, content):
    cache = tmp_path / "cache.json"
    cache.write_text(content)
    write(tmp_path, plain=PLAIN_DISCOVERY)
    assert len(find_environments(tmp_path, [tmp_path], cache).environments) == 1


def test_five_hundred_files_are_listed_and_none_is_run(tmp_path):
    """One in ten is broken, and one in ten would write a file if it were run."""
    written = tmp_path / "written"
    evil = f"open({str(written)!r}, 'w').write('ran')\nprint('ran')\n"
    for number in range(500):
        body = PLAIN_DISCOVERY + "\n".join(
            f"x{n} = [n * {n} for n in range(10)]" for n in range(50)
        )
        if number % 10 == 0:
            body = "def broken(:\n" + body
        elif number % 10 == 1:
            body = evil + body
        write(tmp_path, **{f"part{number % 7}__env_{number}": body})
    cache = tmp_path / ".sparring" / "cache.json"
    cold = find_environments(tmp_path, [tmp_path], cache)
    warm = find_environments(tmp_path, [tmp_path], cache)
    assert len(cold.environments) == 450
    assert len(cold.problems) == 50
    assert warm == cold
    assert not written.exists()


def test_long_chains_diamonds_and_many_plain_classes_cost_little(tmp_path):
    chain = "from sparring import Environment\nclass C0(Environment): pass\n"
    chain += "".join(f"class C{n}(C{n - 1}): pass\n" for n in range(1, 1500))
    write(tmp_path, chain=chain + "class Last(C1499):\n    '''At the end.'''\n")
    diamond = "class D0: pass\nclass E0: pass\n"
    diamond += "".join(
        f"class D{n}(D{n - 1}, E{n - 1}): pass\nclass E{n}(D{n - 1}, E{n - 1}): pass\n"
        for n in range(1, 40)
    )
    write(tmp_path, diamond=diamond)
    plain = "import torch.nn as nn\nfrom pydantic import BaseModel\n"
    plain += "".join(
        f"class A{n}(BaseModel): pass\nclass B{n}(nn.Module): pass\n" for n in range(10)
    )
    for number in range(300):
        write(tmp_path, **{f"deep__er__plain_{number}": plain})
    started = time.perf_counter()
    assert names(tmp_path) == {"chain": "Last"}
    assert time.perf_counter() - started < 10


def test_an_environment_in_a_package_with_relative_imports_can_be_described(tmp_path):
    write(
        tmp_path,
        pkg__inner="LARGEST = 3\n",
        pkg__near="from sparring import Environment\nfrom .inner import LARGEST\n"
        "class Near(Environment):\n    '''Near.'''\n",
    )
    (tmp_path / "pkg" / "__init__.py").write_text("")
    project = find_project(tmp_path)
    assert project.describe(project.find("near")).error == ""


PARTS = """
'''Sorts mails.

With more to it.'''
from sparring import Suite
agent = suite = measures = None
"""


def catalogue_of(folder: Path, **files: str) -> tuple[list[str], list[str]]:
    """The names and the problems found in a folder with these files."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    found = find_environments(folder, [folder])
    here = [each for each in found.environments if Path(each.file).parent == folder]
    return [each.name for each in here], [each.message for each in found.problems]


def test_a_file_with_all_parts_is_an_environment_without_a_class(tmp_path: Path) -> None:
    assert catalogue_of(tmp_path, triage=RAISING + PARTS) == (["triage"], [])
    (found,) = find_environments(tmp_path, [tmp_path], tmp_path / "cache.json").environments
    again = find_environments(tmp_path, [tmp_path], tmp_path / "cache.json").environments
    assert again == (found,)
    assert (found.target, found.line) == (f"{tmp_path / 'triage.py'}:triage", 7)


@pytest.mark.parametrize(
    "parts",
    [
        "def agent(): ...\ndef suite(): ...\nmeasures = []\n",
        "async def play(case, session): ...\nsuite: object = 1\nmeasures = ()\n",
        "command = ['x']\nsuite = 1\nmeasures = []\n",
        "if True:\n    url, suite, measures = 'u', 1, []\n    url = suite = measures = 1\n",
    ],
)
def test_parts_may_be_bound_in_any_way(parts: str, tmp_path: Path) -> None:
    assert catalogue_of(tmp_path, one=parts)[0] == ["one"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("agent = suite = 1", "defines agent and suite, but no measures"),
        ("play = measures = 1", "defines play and measures, but no suite"),
        ("suite = measures = 1", "defines suite and measures, but no agent"),
    ],
)
def test_a_file_that_lacks_one_part_is_a_problem(text: str, missing: str, tmp_path: Path) -> None:
    names, problems = catalogue_of(tmp_path, half=f"import sparring\n{text}\n")
    assert names == []
    assert len(problems) == 1
    assert problems[0].startswith(missing)
    assert catalogue_of(tmp_path, half=text) == ([], [])  # it has nothing to do with sparring


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run", "from sparring import train\n" + PARTS + "result = train(agent, suite)\n"),
        ("run", "import sparring as s\n" + PARTS + "print(s.Trainer(agent).train())\n"),
        ("_shared", PARTS),
        ("test_triage", PARTS),
        ("inner", "def make():\n    agent = suite = measures = 1\n"),
    ],
)
def test_scripts_private_files_and_tests_are_no_environments(
    name: str, text: str, tmp_path: Path
) -> None:
    assert catalogue_of(tmp_path, **{name: text}) == ([], [])


def test_a_script_for_the_command_line_in_the_same_file_does_not_hide_it(tmp_path: Path) -> None:
    guarded = 'if __name__ == "__main__":\n    train(agent, suite)\n'
    text = "from sparring import train\n" + PARTS + guarded
    assert catalogue_of(tmp_path, triage=text) == (["triage"], [])


def test_a_class_in_the_file_comes_before_its_variables(tmp_path: Path) -> None:
    assert catalogue_of(tmp_path, mails=PLAIN + PARTS) == (["mails"], [])
    (found,) = find_environments(tmp_path, [tmp_path]).environments
    assert found.class_name == "Plain"
