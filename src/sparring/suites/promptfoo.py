"""Reads the tests of a promptfoo configuration as records."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from sparring.contracts.errors import SuiteError
from sparring.contracts.json import JsonObject
from sparring.suites.records import Record

ASSERTION_TYPES = frozenset(
    ("equals", "contains", "icontains", "contains-any", "contains-all", "icontains-any",
     "icontains-all", "starts-with", "regex", "is-json", "contains-json")
)  # fmt: skip
_OTHER_TYPES = (
    "llm-rubric",
    "javascript",
    "python",
    "fn",
    "eval",
    "similar",
    "grade",
    "factuality",
)
_TYPES_WITHOUT_VALUE = ("is-json", "contains-json")
_THRESHOLD = re.compile(r"\(\d+(\.\d+)?\)$")
_FILE = "file://"


def promptfoo_records(path: Path, *, ignore_assertions: Sequence[str]) -> Iterator[Record]:
    """Yield one record per test: its metadata, its variables, `input` and `assertions`.

    If the configuration has exactly one prompt, `input` is that prompt with the variables filled
    in. Variables are also filled into the values of assertions. A variable that is a list yields
    one record per item.
    """
    content = _parsed(path)
    config = content if isinstance(content, Mapping) else {"tests": content}
    prompt = _prompt(config.get("prompts"), path.parent)
    defaults = _loaded(config.get("defaultTest") or {}, path.parent)
    for number, test in enumerate(_tests(config.get("tests"), path)):
        place = f"{path.name}: test {number}"
        if not isinstance(test, Mapping):
            raise SuiteError(f"{place} is {type(test).__name__}, not an object with `vars`")
        listed = [*(defaults.get("assert") or ()), *(test.get("assert") or ())]
        found = [_assertion(each, place) for each in listed]
        kept = [each for each in found if each["type"] not in ignore_assertions]
        _refuse_unknown(kept, place)
        kept = [{**each, "value": _expected(each["value"], path.parent, place)} for each in kept]
        given = {**(defaults.get("vars") or {}), **(test.get("vars") or {})}
        for variables in _combinations(given):
            asserted = [_with_variables(each, variables, place) for each in kept]
            record = {**(test.get("metadata") or {}), **variables, "assertions": asserted}
            if prompt is not None:
                record["input"] = _filled(prompt, variables, place)
            yield record


def _parsed(path: Path) -> Any:
    """Return the content of a YAML, JSON, JSONL or CSV file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        if path.suffix == ".csv":
            return [_csv_test(row) for row in csv.DictReader(text.splitlines(keepends=True))]
        return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise SuiteError(f"{path} is not {path.suffix[1:].upper() or 'YAML'}: {error}") from error


def _csv_test(row: Record) -> JsonObject:
    """Return the test of a CSV row; the `__expected…` columns hold its assertions."""
    variables = {name: value for name, value in row.items() if not str(name).startswith("__")}
    asserted = [
        value for name, value in row.items() if str(name).startswith("__expected") and value
    ]
    return {"vars": variables, "assert": [_short_form(each) for each in asserted]}


def _short_form(text: str) -> JsonObject:
    """Return the assertion of a CSV cell: `type: value`, `type(threshold): value`, a type that
    needs no value, or a text that the answer must equal."""
    kind, colon, value = text.partition(":")
    kind = _THRESHOLD.sub("", kind.strip())
    name = kind.removeprefix("not-")
    if not colon and text.strip().removeprefix("not-") in _TYPES_WITHOUT_VALUE:
        return {"type": kind}
    if not colon or name not in {*ASSERTION_TYPES, *_OTHER_TYPES}:
        return {"type": "equals", "value": text}
    return {"type": kind, "value": value.strip()}


def _loaded(value: Any, folder: Path) -> Any:
    """Return the content of the file if the value is a `file://` reference, else the value."""
    if isinstance(value, str) and value.startswith(_FILE):
        return _parsed(folder / value.removeprefix(_FILE))
    return value


def _tests(tests: Any, path: Path) -> Iterator[Any]:
    listed = [tests] if isinstance(tests, str) else tests
    if not isinstance(listed, list) or not listed:
        raise SuiteError(f"{path} has no `tests`; give a promptfoo configuration or its tests file")
    for each in listed:
        if not isinstance(each, str):
            yield each
            continue
        name = each.removeprefix(_FILE)
        if "://" in name or Path(name).suffix not in {".yaml", ".yml", ".json", ".jsonl", ".csv"}:
            raise SuiteError(
                f"{path.name} takes tests from {each}, which cannot be read here; "
                "export them to YAML, JSON or CSV"
            )
        content = _parsed(path.parent / name)
        yield from content if isinstance(content, list) else [content]


def _prompt(prompts: Any, folder: Path) -> str | None:
    """Return the configuration's only prompt; None if it has none or several, or its file is
    neither .txt nor .md."""
    listed = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        return None
    prompt: str = listed[0]
    if not prompt.startswith(_FILE):
        return prompt
    file = folder / prompt.removeprefix(_FILE)
    if file.suffix not in {".txt", ".md"}:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"the prompt {file} cannot be read: {error}") from error


def _filled(template: str, variables: JsonObject, place: str) -> str:
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    try:
        return environment.from_string(template).render(variables)
    except Exception as error:  # a filter may raise anything, for example `round` of a text
        raise SuiteError(f"{place}: {template[:60]!r} cannot be filled in: {error}") from error


def _combinations(variables: JsonObject) -> Iterator[JsonObject]:
    choices = [value if isinstance(value, list) else [value] for value in variables.values()]
    for values in itertools.product(*choices):
        yield dict(zip(map(str, variables), values, strict=True))


def _assertion(given: Any, place: str) -> JsonObject:
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
        raise SuiteError(f"{place} has an assertion without a type: {given!r}")
    kind = str(given["type"])
    name = kind.removeprefix("not-")
    return {"type": name, "value": given.get("value"), "is_negated": name != kind}


def _expected(value: Any, folder: Path, place: str) -> Any:
    """Return the value of an assertion, read from its file if it names one."""
    if not isinstance(value, str) or not value.startswith(_FILE):
        return value
    if Path(value).suffix not in {".json", ".yaml", ".yml"}:
        raise SuiteError(
            f"{place} asserts {value}, which cannot be read here; write its content as the value, "
            "or give a JSON or YAML file"
        )
    return _loaded(value, folder)


def _with_variables(assertion: JsonObject, variables: JsonObject, place: str) -> JsonObject:
    """Return the assertion with the variables filled into its text, or into the texts in its list.
    A text of several alternatives is split at its commas."""

    def fill(value: Any) -> Any:
        is_template = isinstance(value, str) and ("{{" in value or "{%" in value)
        return _filled(value, variables, place) if is_template else value

    value = assertion["value"]
    value = [fill(each) for each in value] if isinstance(value, list) else fill(value)
    if isinstance(value, str) and assertion["type"].endswith(("-any", "-all")):
        value = [part.strip() for part in value.split(",")]
    return {**assertion, "value": value}


def _refuse_unknown(assertions: list[JsonObject], place: str) -> None:
    unknown = sorted({each["type"] for each in assertions} - ASSERTION_TYPES)
    if unknown:
        raise SuiteError(
            f"{place} asserts {', '.join(unknown)}, which has no equivalent here; write a measure "
            f"for it (llm_judge for a rubric) and pass ignore_assertions={unknown!r}"
        )
