"""Templates print tool schemas in one form, whatever a client or a server made of them."""

from __future__ import annotations

import copy
import importlib.util
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.models.templates import known_digests, own_template, trl_template, with_schemas
from sparring.models.tiny import build_tokenizer

_PRINT = "{%- for tool in tools %}{{- tool_json(tool) }}{% endfor %}"
_PRINT_LINES = "{%- for tool in tools %}{{- tool_json(tool, '\n') }}{% endfor %}"
TOKENIZER = build_tokenizer()


def rendered(template: str, tool: dict[str, Any]) -> str:
    messages = [{"role": "user", "content": "-"}]
    text = TOKENIZER.apply_chat_template(
        messages, tools=[tool], chat_template=template, tokenize=False
    )
    return str(text)


def tool_of(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    function = {"name": "f", "description": 'Does <it> "so".', "parameters": parameters}
    return {"type": "function", "function": function}


leaves = st.sampled_from(
    [
        {"type": "string", "description": "ä < b"},
        {"type": "integer"},
        {"type": "string", "enum": ["a", "b"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": ["string", "null"]},
    ]
)
fields = st.recursive(
    leaves,
    lambda below: (
        below.map(lambda item: {"type": "array", "items": item})
        | st.dictionaries(st.sampled_from("abc"), below, min_size=1).map(
            lambda inner: {
                "type": "object",
                "properties": dict(sorted(inner.items())),
                "required": sorted(inner)[:1],
            }
        )
    ),
    max_leaves=6,
)
tools = st.dictionaries(st.sampled_from(["z", "a", "m"]), fields).map(
    lambda properties: tool_of(properties, list(properties)[:1])
)


@given(tools)
def test_a_schema_in_the_common_form_is_printed_as_json_prints_it(tool: dict[str, Any]) -> None:
    assert rendered(with_schemas(_PRINT), tool) == json.dumps(tool, ensure_ascii=False)
    with_lines = json.dumps(tool, ensure_ascii=False, indent=4)
    assert rendered(with_schemas(_PRINT_LINES), tool) == with_lines


def disturbed(schema: Any, order: bool) -> Any:
    """The schema as some client would send it: with further keys, in another order."""
    if not isinstance(schema, dict):
        return schema
    changed = {}
    for key, value in schema.items():
        if key == "properties":
            changed[key] = {name: disturbed(field, order) for name, field in value.items()}
        elif key == "anyOf":
            changed[key] = [disturbed(choice, order) for choice in value]
        else:
            changed[key] = disturbed(value, order) if key == "items" else value
    changed |= {"title": "X", "default": None, "additionalProperties": False}
    return dict(reversed(changed.items())) if order else changed


@given(tools, st.booleans())
def test_keys_that_servers_drop_and_their_order_do_not_matter(
    tool: dict[str, Any], order: bool
) -> None:
    other = copy.deepcopy(tool)
    other["function"]["strict"] = True
    parameters = other["function"]["parameters"]
    parameters["properties"] = {
        name: disturbed(field, order) for name, field in parameters["properties"].items()
    }
    assert rendered(with_schemas(_PRINT), other) == rendered(with_schemas(_PRINT), tool)


def test_a_reference_is_printed_as_what_it_refers_to_and_a_circle_ends() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    tool = tool_of({"at": {"$ref": "#/$defs/Point"}}, [])
    tool["function"]["parameters"]["$defs"] = {"Point": point}
    plain = tool_of({"at": point}, [])
    assert rendered(with_schemas(_PRINT), tool) == rendered(with_schemas(_PRINT), plain)
    point["properties"]["next"] = {"$ref": "#/$defs/Point"}  # type: ignore[index]
    assert len(rendered(with_schemas(_PRINT), tool)) < 1_000


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    tool = {"type": "function", "function": {"name": "now"}}
    function = json.loads(rendered(with_schemas(_PRINT), tool))["function"]
    assert function["parameters"] == {"type": "object", "properties": {}}


def test_macros_are_added_where_they_are_used_alone() -> None:
    assert with_schemas("{{ x }}") == "{{ x }}"
    assert "macro tool_json" in own_template("qwen3")
    assert "macro" not in own_template("smollm2")


def test_trl_is_read_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<|im_start|>" in (trl_template("qwen3") or "")
    assert trl_template("no_such_model") is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert trl_template("qwen3") is None


def test_digests_are_sha256() -> None:
    digests = [each for models in known_digests().values() for each in models.values()]
    assert len(digests) == len(set(digests))
    assert all(len(each) == 64 for each in digests)
