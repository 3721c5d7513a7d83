"""Project files and `--set`: every mistake is answered with its place; no input breaks it."""

from __future__ import annotations

import json
import random
import re
import string

import pytest

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import SparringError
from sparring.settings.assignments import assigned
from sparring.settings.document import parse
from sparring.settings.fields import check_types, defaults, known_names, refuse_unknown
from sparring.settings.layers import Layer, resolve
from sparring.settings.locks import default_locks
from sparring.settings.project_file import read_project_file

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
    resolved = resolve(layers, locks, is_operator=False)
    return check_types(resolved, kind, FIELDS).values, resolved


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
    values, _ = run_settings("[settings]\nnum_generations = 8\ntool_rounds = 2\n", kind="eval")
    assert (values["num_generations"], values["tool_rounds"]) == (1, 2)
    values, _ = run_settings("[eval]\nnum_generations = 3\n", kind="eval")
    assert values["num_generations"] == 3


def test_shown_settings_set_again_by_a_command_are_the_same():
    values, _ = run_settings(GOOD)
    shown = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    again, _ = run_settings("", assigned(shown, {}))
    assert again == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[settings]\nlearning_rat = 1\n", "sparring.toml:2: learning_rat: there is no such setting; did you mean learning_rate?"),
        ("[settings]\nsave_steps = 1\n", "sparring.toml:2: save_steps: use checkpoint_steps"),
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
        ("[settings]\nmodel = 3\n", "model must be a string, not '3'"),
        ("[settings]\nprocesses = 0\n", "processes must be a whole number of at least 1"),
        ("settings = 3\n", "settings must be a table"),
        ("[settings\n", "sparring.toml:1: this is not TOML"),
        ("[settings]\nbeta = 1\n[[lock]]\nfield = 'beta'\nvalue = 2\n", "sparring.toml:2: beta is locked to 2 by sparring.toml:4"),
    ],
)  # fmt: skip
def test_every_mistake_names_field_file_line_and_the_nearest_name(text, said):
    with pytest.raises(SparringError) as refused:
        run_settings(text)
    assert said in str(refused.value)


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
    refused = lined = told = 0
    for _ in range(3000):
        text = _mutated(GOOD, chance)
        said = _refusal_of(lambda text=text: run_settings(text))
        if said is not None:
            refused += 1
            assert re.match(r"sparring\.toml(:\d+)?: ", said), (text, said)
            if "not TOML" not in said and "cannot be a" not in said:
                lined += bool(re.match(r"sparring\.toml:\d+: ", said))
                told += 1
    assert refused > 500
    assert lined > 0.95 * told > 100


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
        said = _refusal_of(lambda given=assignment: run_settings(GOOD, assigned([given], {})))
        if said is not None:
            refused += 1
            first = assignment.partition("=")[0].strip().partition(".")[0]
            assert "--set" in said or (first and first in said), (assignment, said)
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
def test_what_is_no_plain_value_is_refused_by_the_file(text):
    with pytest.raises(SparringError, match=r"^sparring\."):
        run_settings(text)
