"""Asking an environment what it says of itself, in a process of its own."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from sparring.contracts.environments import FoundEnvironment
from sparring.projects import find_project
from sparring.projects.descriptions import describe
from sparring.sandbox import probe

ENVIRONMENT = """
    import os
    from pydantic import Field
    from sparring import Environment, Service
    {extra}
    class Talk(Environment):
        '''Talks.'''
        measures = ("length", "numeric")
        settings = {{"temperature": 0.5}}
        needs_sandbox = True
        services = (Service("web", ["python", "-m", "http.server"]),)
        class Config(Environment.Config):
            size: int = Field(3, ge=1, le=9, description="how large")
            where: str
"""


def project(folder: Path, extra: str = ""):
    (folder / "talk.py").write_text(textwrap.dedent(ENVIRONMENT).format(extra=extra))
    return find_project(folder)


def test_fields_types_defaults_limits_and_descriptions(tmp_path):
    here = project(tmp_path, "print('noise on the output')")
    description = here.describe(here.find("talk"))
    assert description.error == ""
    size, where = description.fields
    assert (size.name, size.type, size.default, size.description) == ("size", "int", 3, "how large")
    assert (size.json_schema["minimum"], size.json_schema["maximum"]) == (1, 9)
    assert where.required
    assert description.measures == ("length", "numeric")
    assert description.settings == {"temperature": 0.5}
    assert [each.command for each in description.services] == [["python", "-m", "http.server"]]
    assert description.needs_sandbox


def test_the_file_sees_no_secret_and_no_other_process(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret")
    reading = "raise RuntimeError(str(dict(os.environ)) + str(os.listdir('/proc')))"
    here = project(tmp_path, reading)
    description = here.describe(here.find("talk"))
    assert "RuntimeError" in description.error
    assert "a-secret" not in description.error
    if probe().works:
        assert f"'{os.getpid()}'" not in description.error


def test_a_file_that_hangs_is_given_up_and_its_base_fields_stay(tmp_path):
    here = project(tmp_path, "import time; time.sleep(60)")
    found = here.find("talk")
    description = describe(found, [Path(found.file)], seconds=3)
    assert "within 3 s" in description.error
    assert (description.name, description.fields) == ("talk", ())


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("import nothing_of_that_name", "No module named"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("os._exit(3)", "could not be described"),
        (
            """print('{"services": [{"name": "a", "command": []}]}'); os._exit(0)""",
            "could not be described",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_described_with_its_error(tmp_path, extra, message):
    here = project(tmp_path, extra)
    assert message in here.describe(here.find("talk")).error


def test_answers_are_kept_by_content_also_of_what_is_imported(tmp_path):
    (tmp_path / "part.py").write_text("LARGEST = 9\n")
    here = project(tmp_path, "from part import LARGEST")
    first = here.describe(here.find("talk"))
    cached = list((tmp_path / ".sparring" / "cache" / "descriptions").iterdir())
    assert here.describe(here.find("talk")) == first
    assert list((tmp_path / ".sparring" / "cache" / "descriptions").iterdir()) == cached
    (tmp_path / "part.py").write_text("LARGEST = 8  # changed\n")
    here.describe(here.find("talk"))
    assert len(list((tmp_path / ".sparring" / "cache" / "descriptions").iterdir())) == 2


def test_an_owners_file_may_read_variables_at_import(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "a-secret")
    here = project(tmp_path, "DATABASE = os.environ['DATABASE_URL']")
    found = here.find("talk")
    assert here.describe(found, is_owner=True).error == ""
    description = here.describe(found)  # an operator's question, and nothing is remembered for it
    assert "DATABASE_URL" in description.error
    assert "does not pass on" in description.error


def test_an_environment_whose_folder_is_gone_is_described_by_the_error(tmp_path):
    file = tmp_path / "gone" / "talk.py"
    found = FoundEnvironment(name="talk", class_name="Talk", file=str(file), line=1)
    description = describe(found, [file], tmp_path / "cache")
    assert description.error.startswith(f"{file} could not be described: ")
    assert not (tmp_path / "cache").exists()


def test_an_import_that_creates_a_database_works_for_the_owner(tmp_path):
    """SQLite reports a read-only file system in its own words."""
    creating = "import sqlite3; sqlite3.connect('cases.db').execute('create table mails (id)')"
    found = project(tmp_path, creating).find("talk")
    described = describe(found, [Path(found.file)], is_owner=True)
    assert described.error == ""
    assert (tmp_path / "cases.db").is_file()


def test_a_file_in_a_folder_imports_packages_of_the_project_as_its_runs_do(tmp_path, monkeypatch):
    (tmp_path / "shop_parts").mkdir()
    (tmp_path / "shop_parts" / "__init__.py").write_text("SIZE = 3")
    (tmp_path / "environments").mkdir()
    (tmp_path / "sparring.toml").write_text('[project]\nlook_in = ["environments"]\n')
    text = textwrap.dedent(ENVIRONMENT).format(extra="from shop_parts import SIZE")
    (tmp_path / "environments" / "talk.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    here = find_project(tmp_path)
    assert here.describe(here.find("talk")).error == ""
    assert here.describe(here.find("talk"), is_owner=True).error == ""
