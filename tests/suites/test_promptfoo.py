"""The tests of a promptfoo configuration as cases."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparring.contracts.errors import SuiteError
from sparring.measures.assertions import ASSERTIONS
from sparring.suites import Suite
from sparring.suites.promptfoo import ASSERTION_TYPES, promptfoo_records

PARIS = {"vars": {"country": "France"}, "assert": [{"type": "contains", "value": "Paris"}]}
PROMPT = "What is the capital of {{ country }}?"


def written(folder: Path, name: str = "promptfooconfig.yaml", **config: Any) -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump(config))
    return file


def records(path: Path, *ignored: str) -> list[dict[str, Any]]:
    return list(promptfoo_records(path, ignore_assertions=ignored))


def test_the_prompt_is_filled_in_and_the_assertions_are_kept(tmp_path: Path) -> None:
    (record,) = records(written(tmp_path, prompts=[PROMPT], tests=[PARIS]))
    assert record["input"] == "What is the capital of France?"
    assert record["country"] == "France"
    assert record["assertions"] == [{"type": "contains", "value": "Paris", "is_negated": False}]


def test_a_suite_is_made_of_it(tmp_path: Path) -> None:
    tests = [{"vars": {"country": f"Land {n}"}} for n in range(60)]
    file = written(tmp_path, prompts=PROMPT, tests=tests)
    assert len(Suite.from_promptfoo(file)) == 60
    several = written(tmp_path, prompts=[PROMPT, "Other {{ country }}"], tests=tests)
    with pytest.raises(SuiteError, match="has no 'input'"):
        Suite.from_promptfoo(several)
    assert len(Suite.from_promptfoo(several, input="country")) == 60


def test_defaults_and_negated_assertions_are_merged(tmp_path: Path) -> None:
    defaults = {"vars": {"country": "Spain"}, "assert": [{"type": "not-icontains", "value": "AI"}]}
    file = written(tmp_path, prompts=[PROMPT], defaultTest=defaults, tests=[PARIS, {}])
    first, second = records(file)
    assert [each["type"] for each in first["assertions"]] == ["icontains", "contains"]
    assert first["assertions"][0]["is_negated"]
    assert second["input"] == "What is the capital of Spain?"


def test_a_variable_with_several_values_is_several_cases(tmp_path: Path) -> None:
    test = {"vars": {"country": ["France", "Spain"], "tone": ["kind", "curt"]}}
    found = records(written(tmp_path, prompts=["{{ country }}, {{ tone }}"], tests=[test]))
    assert [each["input"] for each in found] == [
        "France, kind", "France, curt", "Spain, kind", "Spain, curt"
    ]  # fmt: skip


def test_prompts_and_tests_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT)
    (tmp_path / "cases.jsonl").write_text(json.dumps(PARIS) + "\n\n" + json.dumps(PARIS) + "\n")
    (tmp_path / "cases.csv").write_text(
        "country,__expected,__expected2\n"
        'Italy,Rome,"icontains-any: rome, roma"\n'
        "Peru,not-contains: Quito,Answer: Lima\n"
    )
    tests = ["file://cases.jsonl", "file://cases.csv"]
    found = records(written(tmp_path, prompts=["file://prompt.txt"], tests=tests))
    assert [each["country"] for each in found] == ["France", "France", "Italy", "Peru"]
    italy, peru = found[2]["assertions"], found[3]["assertions"]
    assert [(each["type"], each["value"]) for each in italy] == [
        ("equals", "Rome"), ("icontains-any", ["rome", "roma"])
    ]  # fmt: skip
    assert [(each["type"], each["is_negated"]) for each in peru] == [
        ("contains", True), ("equals", False)
    ]  # fmt: skip


def test_a_cell_may_name_a_type_without_a_value_or_with_a_threshold(tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("country,__expected\nItaly,is-json\nPeru,not-contains-json\n")
    found = [each["assertions"][0] for each in records(file)]
    assert [(each["type"], each["is_negated"]) for each in found] == [
        ("is-json", False), ("contains-json", True)
    ]  # fmt: skip
    file.write_text("country,__expected\nItaly,python (3.11): a release\n")
    assert records(file)[0]["assertions"][0]["type"] == "equals"
    file.write_text("country,__expected\nItaly,similar(0.9): Rome\n")
    with pytest.raises(SuiteError, match="asserts similar"):
        records(file)


def test_a_tests_file_by_itself_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump([PARIS]))
    assert records(file)[0]["country"] == "France"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"prompts": [PROMPT]}, "has no `tests`"),
        ({"tests": ["huggingface://datasets/x"]}, "cannot be read here"),
        ({"tests": ["file://cases.js"]}, "cannot be read here"),
        ({"tests": ["file://missing.yaml"]}, "cannot be read"),
        ({"tests": ["no test"], "prompts": []}, "cannot be read here"),
        ({"tests": [7]}, "test 0 is int, not an object"),
        ({"tests": [{"assert": ["x"]}]}, "an assertion without a type"),
        ({"tests": [{"vars": {}}], "prompts": [PROMPT]}, "cannot be filled in.*country"),
        ({"tests": [{"vars": {}}], "prompts": ["file://none.txt"]}, "the prompt .* cannot be read"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused_with_the_reason(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SuiteError, match=message):
        records(written(tmp_path, **config))


def test_a_file_that_is_not_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: [")
    with pytest.raises(SuiteError, match=r"x\.yaml is not YAML"):
        records(tmp_path / "x.yaml")


def test_an_assertion_without_an_equivalent_is_refused_unless_ignored(tmp_path: Path) -> None:
    judged = {**PARIS, "assert": [{"type": "llm-rubric", "value": "is kind"}, *PARIS["assert"]]}
    file = written(tmp_path, prompts=[PROMPT], tests=[judged])
    with pytest.raises(SuiteError, match=r"test 0 asserts llm-rubric.*\['llm-rubric'\]"):
        records(file)
    (record,) = records(file, "llm-rubric")
    assert [each["type"] for each in record["assertions"]] == ["contains"]


def test_the_file_of_an_ignored_assertion_is_not_read(tmp_path: Path) -> None:
    script = {"type": "javascript", "value": "file://judge.js"}
    file = written(tmp_path, prompts=[PROMPT], tests=[{**PARIS, "assert": [script]}])
    with pytest.raises(SuiteError, match=r"asserts javascript.*\['javascript'\]"):
        records(file)
    (record,) = records(file, "javascript")
    assert record["assertions"] == []


def test_every_kind_of_assertion_that_is_read_is_judged() -> None:
    assert set(ASSERTIONS) == ASSERTION_TYPES


def test_variables_are_filled_into_the_values_of_assertions(tmp_path: Path) -> None:
    defaults = {
        "assert": [
            {"type": "icontains", "value": "{{ capital }}"},
            {"type": "contains-any", "value": ["{{ capital }}", "{literal}"]},
            {"type": "contains-all", "value": "{{ capital }}, in {{ country }}"},
            {"type": "is-json"},
        ]
    }
    test = {"vars": {"country": "France", "capital": ["Paris", "Lyon"]}}
    file = written(tmp_path, prompts=[PROMPT], defaultTest=defaults, tests=[test])
    paris, lyon = ([each["value"] for each in found["assertions"]] for found in records(file))
    assert paris == ["Paris", ["Paris", "{literal}"], ["Paris", "in France"], None]
    assert lyon[0] == "Lyon"


def test_an_assertion_with_an_unknown_variable_is_refused(tmp_path: Path) -> None:
    test = {"vars": {"country": "France"}, "assert": [{"type": "equals", "value": "{{ capitol }}"}]}
    with pytest.raises(SuiteError, match=re.escape("test 0: '{{ capitol }}' cannot be filled in")):
        records(written(tmp_path, prompts=[PROMPT], tests=[test]))


def test_a_filter_that_fails_is_named(tmp_path: Path) -> None:
    test = {"vars": {"size": "3.2"}, "assert": [{"type": "equals", "value": "{{ size | round }}"}]}
    with pytest.raises(SuiteError, match=re.escape("test 0: '{{ size | round }}' cannot be")):
        records(written(tmp_path, prompts=[PROMPT], tests=[test]))


def test_the_value_of_an_assertion_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    test = {**PARIS, "assert": [{"type": "is-json", "value": "file://schema.json"}]}
    (record,) = records(written(tmp_path, prompts=[PROMPT], tests=[test]))
    assert record["assertions"][0]["value"] == {"type": "object"}
    test["assert"][0]["value"] = "file://judge.py"
    with pytest.raises(SuiteError, match=r"file://judge\.py, which cannot be read here"):
        records(written(tmp_path, prompts=[PROMPT], tests=[test]))
