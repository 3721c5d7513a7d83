"""Project files and `--set`: every mistake is answered with its place; no input breaks it."""

from __future__ import annotations

import json
import random
import re
import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.settings.assignments import assigned
from sparring.settings.fields import known_names, refuse_unknown
from sparring.settings.layers import Layer, check_types, defaults, merge
from sparring.settings.locks import default_locks
from sparring.settings.project_file import ParsedFile, parse, project_file_schema, read_project_file

TOML = """\
[project]
look_in = [
  "envs",
  "[more]",
]

[settings]
lora.r = 8  # = 16
"beta" = 0.1
project = '''
model = "in a string"
'''
guards = { entropy = "warn" }

[[lock]]
field = "beta"

[[lock]]
field = "seed"
"""


def lines_of(text: str, name: str = "sparring.toml") -> dict[str, int]:
    return dict(parse(text, name).lines)


def test_every_key_of_a_toml_file_has_its_line() -> None:
    lines = {
        "project": 1,
        "project.look_in": 2,
        "settings": 7,
        "settings.lora.r": 8,
        "settings.beta": 9,
        "settings.project": 10,
        "settings.guards": 13,
        "lock.0": 15,
        "lock.0.field": 16,
        "lock.1": 18,
        "lock.1.field": 19,
    }
    assert lines_of(TOML).items() >= lines.items()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('x = "# [a]"\ny = 1\n', 2),
        ('x = "it\'s"\ny = 1\n', 2),
        ('x = "a \\" ["\ny = 1\n', 2),
        ("x = '''one line'''\ny = 1\n", 2),
        ('x = """\ny = 2\n""" # """\ny = 1\n', 4),
        ('x = """ a\ny = 2\n"""\ny = 1\n', 4),
        ('x = """a \\""" b"""\ny = 1\n', 2),
        ("x = [\n  [1], # ]\n  { y = 2 },\n]\ny = 1\n", 5),
        ("x = 1\r\ny = 1\r\n", 2),
    ],
)
def test_strings_comments_and_brackets_do_not_shift_lines(text: str, line: int) -> None:
    assert lines_of(text)["y"] == line


def test_a_place_is_that_of_the_value_or_of_the_nearest_one() -> None:
    document = parse(TOML, "sparring.toml")
    assert document.place_of("settings.beta") == "sparring.toml:9"
    assert document.place_of("settings.lora") == "sparring.toml:8"
    assert document.place_of("settings.guards.entropy") == "sparring.toml:13"  # an inline table
    assert document.place_of("settings.seed") == "sparring.toml:7"  # the table around it
    assert document.place_of("budget.steps") == "sparring.toml"


def test_the_place_of_a_table_without_a_line_is_that_of_its_first_value() -> None:
    assert ParsedFile("f.toml", {}, {"a.x": 4, "a.y": 3, "ab": 1}).place_of("a") == "f.toml:3"


def test_the_places_in_a_table_are_known_by_the_names_there() -> None:
    document = ParsedFile("f.toml", {}, {"a": 1, "a.x": 2, "a.t.y": 3, "ab": 9})
    assert document.places_below("a") == {"": "f.toml:1", "x": "f.toml:2", "t.y": "f.toml:3"}
    assert document.places_below("other") == {"": "f.toml"}


@pytest.mark.parametrize(
    ("text", "place"),
    [("[settings]\nbeta = \n", "sparring.toml:2"), ("x = " + "[" * 5000, "sparring.toml")],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text, "sparring.toml")
    assert str(refused.value).startswith(f"{place}: this is not TOML: ")


def test_an_empty_file_holds_no_tables() -> None:
    assert parse("# nothing yet\n", "sparring.toml") == ParsedFile("sparring.toml", {}, {})


def test_a_value_that_no_setting_can_have_is_refused() -> None:
    with pytest.raises(SettingError, match=r"this date cannot be a setting"):
        parse("[settings]\nx = 2024-01-01\n", "sparring.toml")


GOOD = '''
[project]
look_in = ["envs"]

[settings]
learning_rate = 3e-4
lora.r = 8

[environment.shop.settings]
max_steps = 40
[environment.shop.config]
items = 12

[eval]
num_generations = 4

[[lock]]
field = "temperature"
value = 0.7
author = "Kim"
reason = """so that
figures compare"""

[budget]
steps = 100
'''
FIELDS = (
    FieldDescription(
        name="items", type="int", default=5, json_schema={"type": "integer", "maximum": 20}
    ),
)


def run_settings(
    text: str, command: dict | None = None, name: str = "sparring.toml", kind: str = "train"
):
    file = read_project_file(parse(text, name))
    layers = [Layer("defaults", defaults(kind, FIELDS)), *file.layers("shop", kind)]
    refuse_unknown(command or {}, "the command", known_names(kind))
    layers.append(Layer("the command", command or {}, is_written=True, is_command=True))
    locks = [*file.locks_for("shop"), *default_locks()]
    resolved = merge(layers, locks, is_operator=False)
    check_types(resolved, kind, FIELDS)
    return resolved.values(), resolved


def test_every_value_knows_its_line():
    values, resolved = run_settings(GOOD)
    assert resolved.settings["learning_rate"].source == "sparring.toml:6"
    assert resolved.settings["lora.r"].source == "sparring.toml:7"
    assert resolved.settings["max_steps"].source == "sparring.toml:10"
    assert resolved.settings["config.items"].source == "sparring.toml:12"
    assert resolved.settings["beta"].source == "defaults"
    lock = resolved.settings["temperature"].lock
    assert (lock.source, lock.author, lock.value) == ("sparring.toml:18", "Kim", 0.7)
    assert values["temperature"] == 0.7
    assert values["lora"] == {"r": 8}


def test_an_evaluation_plays_as_training_does_but_not_as_often():
    values, _ = run_settings("[settings]\nnum_generations = 8\nmax_turns = 3\n", kind="eval")
    assert (values["num_generations"], values["max_turns"]) == (1, 3)
    values, _ = run_settings("[eval]\nnum_generations = 3\n", kind="eval")
    assert values["num_generations"] == 3


def test_shown_settings_set_again_by_a_command_are_the_same():
    values, _ = run_settings(GOOD)
    shown = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    again, _ = run_settings("", assigned(shown, {}))
    assert again == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settings]\nlearning_rat = 1\n", "sparring.toml:2: learning_rat: there is no such setting; did you mean learning_rate?"),
        ("[settings]\ncheckpoint_steps = 1\n", "sparring.toml:2: checkpoint_steps: use save_steps"),
        ("[setings]\nx = 1\n", "sparring.toml:1: setings: there is no such table; did you mean settings?"),
        ("[settings]\n\nlearning_rate = 'much'\n", "sparring.toml:3: learning_rate: Input should be a valid number"),
        ("[settings]\ntop_p = 0.9\n", "sparring.toml:2: top_p: training samples by temperature only"),
        ("[settings]\n[settings.guards.truncated]\nlimt = 1\n", "sparring.toml:3: guards.truncated.limt: there is no such setting; did you mean limit?"),
        ("[environment.shop.config]\nitem = 3\n", "sparring.toml:2: config.item: there is no such field; did you mean config.items?"),
        ("[environment.shop.config]\nitems = 21\n", "sparring.toml:2: config.items: 21 is greater than the maximum of 20"),
        ("[environment.shop.config]\nitems = 'x'\n", "config.items: 'x' is not of type 'integer'"),
        ("[budget]\nsteps = 0\n", "sparring.toml:2: budget.steps: Input should be greater than or equal to 1"),
        ("[budget]\nstep = 1\n", "budget.step: no such field; did you mean steps?"),
        ("[[lock]]\nfield = 'learning_rte'\n", "sparring.toml:2: learning_rte: there is no such setting"),
        ("[lock]\nfield = 'x'\n", "write each lock as [[lock]]"),
        ("lock = [3]\n", "lock.0 must be a table"),
        ("[settings]\nconfig = 1\n", "write [environment.NAME.config]"),
        ("[settings]\nmodel = 3\n", "model: Input should be a valid string"),
        ("[settings]\nprocesses = 0\n", "processes: Input should be greater than or equal to 1"),
        ("settings = 3\n", "settings must be a table"),
        ("[settings\n", "sparring.toml:1: this is not TOML"),
        ("[settings]\nbeta = 1\n[[lock]]\nfield = 'beta'\nvalue = 2\n", "sparring.toml:2: beta is locked to 2 by sparring.toml:4"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_field_file_line_and_nearest_name(text, message):
    with pytest.raises(SparringError) as refused:
        run_settings(text)
    assert message in str(refused.value)


# ------------------------------------------------------------------ fuzzing


def _mutated(text: str, chance: random.Random) -> str:
    """A valid file with something wrong in it: characters, lines, values."""
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(6)
        at = chance.randrange(len(text) + 1)
        if kind == 0:
            text = text[:at] + chance.choice(string.printable) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + chance.randint(1, 9) :]
        elif kind == 2:
            lines = text.splitlines()
            chance.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 3:
            odd = [
                "[[",
                "{}",
                "[]",
                "nan",
                "-1",
                "1e999",
                "'''",
                "\x00",
                "\ud800",
                "é",
                "true",
                "[" * 200,
            ]
            text = text[:at] + chance.choice(odd) + text[at:]
        elif kind == 4:
            text = text.replace(
                chance.choice(["=", ".", "[", "shop", "8"]), chance.choice(["", "..", "=="]), 1
            )
        else:
            text += f"\n{chance.choice(['settings', 'lock', 'budget', 'x'])}.{chance.choice('abc')} = {chance.choice(['1', '[1]', '{a=1}'])}\n"
    return text


def _refusal_of(work) -> str | None:
    """The refusal, or None; anything else than a refusal fails the test."""
    try:
        work()
    except SparringError as error:
        return str(error)
    return None


def test_3000_spoilt_project_files_are_read_or_refused_with_their_place():
    chance = random.Random(5)
    refused = lined = placed = 0
    for _ in range(3000):
        text = _mutated(GOOD, chance)
        message = _refusal_of(lambda text=text: run_settings(text))
        if message is not None:
            refused += 1
            assert re.match(r"sparring\.toml(:\d+)?: ", message), (text, message)
            if "not TOML" not in message and "cannot be a" not in message:
                lined += bool(re.match(r"sparring\.toml:\d+: ", message))
                placed += 1
    assert refused > 500
    assert lined > 0.95 * placed > 100


def test_2000_assignments_are_taken_or_refused_with_the_field():
    chance = random.Random(6)
    fields = [*known_names("train"), "lora.r", "guards.truncated", "engine.x", "config.items", ""]
    texts = [
        "1",
        "-1",
        "x",
        "",
        "[]",
        "{}",
        '{"a":1}',
        "null",
        "true",
        "1e400",
        "NaN",
        "'",
        '"',
        "\ud800",
        "[" * 5000,
        "9" * 5000,
        "é=é",
    ]
    refused = 0
    for _ in range(2000):
        name = chance.choice(fields)
        if chance.random() < 0.3:
            at = chance.randrange(len(name) + 1)
            name = name[:at] + chance.choice([".", "x", " ", "=", "-", ""]) + name[at + 1 :]
        assignment = name + chance.choice(["=", "=", "=", ""]) + chance.choice(texts)
        message = _refusal_of(lambda given=assignment: run_settings(GOOD, assigned([given], {})))
        if message is not None:
            refused += 1
            first = assignment.partition("=")[0].strip().partition(".")[0]
            assert "--set" in message or (first and first in message), (assignment, message)
    assert refused > 500


@pytest.mark.parametrize(
    "text",
    [
        "settings.lora" + ".a" * 2000 + " = 1\n",
        "[settings]\nbeta = " + "9" * 5000 + "\n",
        "[settings]\nmodel = 0x" + "f" * 6000 + "\n",
        "[settings.engine]\nx = 2024-01-01\n",
        '[project]\nruns = "\\u0000"\n',
    ],
)
def test_a_value_that_is_not_plain_is_refused_with_its_place(text):
    with pytest.raises(SparringError, match=r"^sparring\."):
        run_settings(text)


ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [
        *(ROOT / "examples").rglob("sparring.toml"),
        ROOT / "src/sparring/projects/template/sparring.toml.txt",
    ]
)
GOOD_SCHEMA = """
[settings]
warm_start = "demonstrations.jsonl"
report_to = "trackio"
guards = { entropy = "warn" }
lora = { r = 8 }
slurm = { partition = "gpu" }
sampling = 2
[sampling]
servers = ["http://a:8000", "http://b:8000"]
[eval]
num_generations = 4
[environment.shop.settings]
max_steps = 3
[environment.shop.config]
anything = [1, 2]
[[lock]]
field = "max_steps"
value = 5
[budget]
hours = 1.5
[operators]
may_set = ["config.level"]
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = project_file_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(validator: Draft202012Validator, text: str) -> list[Any]:
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_every_project_file_in_the_repository_is_valid(file: Path, validator: Any) -> None:
    assert not problems(validator, file.read_text())


def test_the_schema_accepts_what_sparring_reads(validator: Draft202012Validator) -> None:
    read_project_file(parse(GOOD_SCHEMA, "sparring.toml"))
    assert not problems(validator, GOOD_SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "[settings]\nmax_step = 3",
        "[project]\nname = 'x'",
        "[budget]\nsteps = 0",
        "[setings]\nmax_steps = 3",
        "[eval]\nmax_steps = 3",
        "[[lock]]\nvalue = 3",
    ],
)
def test_the_schema_rejects_what_sparring_refuses(text: str, validator: Any) -> None:
    assert problems(validator, text)
    with pytest.raises(InvalidInput, match=r"sparring.toml:"):
        read_project_file(parse(text, "sparring.toml"))


def test_a_value_of_the_wrong_type_is_marked(validator: Draft202012Validator) -> None:
    assert problems(validator, "[settings]\nmax_steps = 'three'")
