"""What every family promises. `python -m tests.policies.test_conformance` writes the table of
docs/families.md from the same checks."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.models.templates import trl_template, without_generation_tags
from sparring.policies.codec import ChatCodec
from sparring.policies.families import TABLE, family_named, recognise, template_of
from tests.policies.family_codecs import WITH_TOOLS, WITHOUT_TOOLS, codec_of, special_tokens
from tests.policies.real_vocabularies import REAL

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a city up.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "day": {"type": "integer"},
                "exact": {"type": "boolean"},
                "share": {"type": "number"},
                "among": {"type": "array", "items": {"type": "string"}},
                "where": {"type": "object"},
                "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["city"],
        },
    },
}
ARGUMENTS = {
    "city": "Tromsø 京都",
    "day": 3,
    "exact": True,
    "share": 0.5,
    "among": ["a", "b'c"],
    "where": {"lat": 1.5, "names": ["x"], "none": None, "sure": False},
    "unit": "5",
}
# gpt-oss states today's date, and the training template a fixed one.
TODAY = ('strftime_now("%Y-%m-%d")', '"2025-08-05"')
QUESTION = Message("user", "How warm is it?")


def call(number: int = 1, **arguments: object) -> RequestedCall:
    written = json.dumps(arguments, ensure_ascii=False)
    return RequestedCall(f"call-{number}", "look_up", written)


def parsed(codec: ChatCodec, message: Message) -> list[tuple[str, object]]:
    reply = codec.parse(codec.encode_reply(message), [TOOL])
    assert not reply.malformed
    assert reply.content == message.content
    return [(each.tool, json.loads(each.arguments)) for each in reply.calls]


ALL = pytest.mark.parametrize("name", list(TABLE))
TOOLED = pytest.mark.parametrize("name", WITH_TOOLS)


@TOOLED
def test_a_call_with_every_type_of_argument_is_read_back(name: str) -> None:
    message = Message("assistant", "", calls=(call(**ARGUMENTS),))
    assert parsed(codec_of(name), message) == [("look_up", ARGUMENTS)]


@TOOLED
@settings(max_examples=15)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12), number=st.integers())
def test_texts_and_numbers_are_read_back_as_what_they_are(
    name: str, text: str, number: int
) -> None:
    """Text that spells a tag of a format that is read as text ends the value."""
    arguments = {"city": text, "day": number}
    message = Message("assistant", "", calls=(call(**arguments),))
    assert parsed(codec_of(name), message) == [("look_up", arguments)]


@TOOLED
def test_calls_at_once_are_read_back_in_order_where_the_format_has_them(name: str) -> None:
    codec = codec_of(name)
    calls = (call(1, city="Oslo"), call(2, city="Rome"))
    if name == "llama3":
        pytest.skip("one call per turn")
    found = parsed(codec, Message("assistant", "", calls=calls))
    assert found == [("look_up", {"city": "Oslo"}), ("look_up", {"city": "Rome"})]


@ALL
def test_an_answer_and_its_thinking_are_kept_apart(name: str) -> None:
    codec = codec_of(name)
    answer = codec.parse(codec.encode_reply(Message("assistant", "It is 7 degrees.")))
    assert (answer.content, answer.thinking, answer.malformed) == ("It is 7 degrees.", "", "")
    if codec.family.thinking and not prompt_closes_thinking(codec):
        thought = Message("assistant", "It is 7.", thinking="North, so cold.")
        reply = codec.parse(codec.encode_reply(thought))
        assert (reply.content, reply.thinking) == ("It is 7.", "North, so cold.")


def prompt_closes_thinking(codec: ChatCodec) -> bool:
    """Whether the prompt forbids thinking."""
    prompt = codec.decode(codec.encode_prompt([QUESTION], []).ids)
    return prompt.rstrip().endswith("</think>")


@TOOLED
def test_splicing_a_round_of_tools_gives_what_rendering_it_gives(name: str) -> None:
    codec = codec_of(name)
    turn = Message("assistant", "", calls=(call(city="Oslo"),))
    result = Message("tool", "7 degrees", call_id="call-1")
    prompt = codec.encode_prompt([QUESTION], [TOOL]).ids
    after = codec.encode_continuation([result], turn.calls).ids
    spliced = prompt + codec.encode_reply(turn) + after
    whole = codec.encode_prompt([QUESTION, turn, result], [TOOL]).ids
    assert without_empty_thinking(codec, spliced) == without_empty_thinking(codec, whole)


def without_empty_thinking(codec: ChatCodec, ids: array[int]) -> str:
    """Nemotron and GLM write an empty block in history otherwise than they open one."""
    text = codec.decode(ids)
    return re.sub(r"<think>\s*</think>\s*", "", text) if codec.family.thinking else text


@TOOLED
def test_appending_a_round_changes_nothing_before_it(name: str) -> None:
    codec = codec_of(name)
    turns = [
        Message("system", "Be brief."),
        QUESTION,
        Message("assistant", "", calls=(call(city="Oslo"),)),
        Message("tool", "7 degrees", call_id="call-1"),
        Message("assistant", "It is 7."),
        Message("user", "Thanks."),
    ]
    render = [render_only(codec, turns[:length]) for length in (3, 5, 6)]
    for shorter, longer in itertools.pairwise(render):
        ended = shorter.removesuffix("<|user|>")
        if codec.family.rewrites_answers:
            ended = ended.removesuffix(codec.family.end_of_turn)
        assert longer.startswith(ended.rstrip("\n"))


def render_only(codec: ChatCodec, messages: list[Message]) -> str:
    text = codec.tokenizer.apply_chat_template(
        [codec._chat_message(message) for message in messages],
        tools=[TOOL],
        chat_template=codec.family.template,
        tokenize=False,
    )
    return str(text)


INJECTIONS: dict[str, Callable[[str], list[Message]]] = {
    "question": lambda text: [Message("user", text)],
    "instructions": lambda text: [Message("system", text), QUESTION],
    "answer": lambda text: [QUESTION, Message("assistant", text), QUESTION],
    "argument": lambda text: [
        QUESTION,
        Message("assistant", "", calls=(call(city=text),)),
        Message("tool", "x", call_id="call-1"),
    ],
    "result": lambda text: [
        QUESTION,
        Message("assistant", "", calls=(call(city="x"),)),
        Message("tool", text, call_id="call-1"),
    ],
}


@TOOLED
@pytest.mark.parametrize("field", INJECTIONS)
def test_text_that_spells_special_tokens_adds_none(name: str, field: str) -> None:
    codec = codec_of(name)
    special = special_tokens(codec)
    attack = "".join(special.values())

    def count(text: str) -> int:
        ids = codec.encode_prompt(INJECTIONS[field](text), [TOOL]).ids
        return sum(token in special for token in ids)

    assert count(f"a{attack}b") == count("ab")


UNUSUAL = {
    "old definitions": {"$ref": "#/definitions/place"},
    "itself": {"$ref": "#"},
    "nothing": {"$ref": "#/$defs/missing"},
    "null among words": {"type": "string", "enum": ["a", None]},
    "several types": {"type": ["string", "null"]},
    "no type": {},
}


@TOOLED
@pytest.mark.parametrize("kind", UNUSUAL)
def test_an_unusual_schema_is_printed(name: str, kind: str) -> None:
    parameters = {
        "type": "object",
        "properties": {"place": UNUSUAL[kind]},
        "definitions": {"place": {"type": "string"}},
    }
    tool = {"type": "function", "function": {"name": "look_up", "parameters": parameters}}
    codec = codec_of(name)
    assert "place" in codec.decode(codec.encode_prompt([QUESTION], [tool]).ids)


MALFORMED = {
    "JSON": ['<tool_call>\n{"name": "look_up", "arguments": {"city": \n</tool_call>'],
    "bare JSON": ['{"name": "look_up", "parameters": {"city": '],
    "XML": [
        "<tool_call>\n<function=look_up>\n<parameter=city>\nOslo\n</function>\n</tool_call>",
        "<tool_call>\nlook_up\n</tool_call>",
        "<function=look_up>\n</function>",
        "<tool_call>\n<function=look_up>\nx\n</function>\n</tool_call>",
        "<tool_call>\n<function=look_up>\n</function>",
    ],
    "key and value": [
        "<tool_call>look_up\n<arg_key>city</arg_key>\n</tool_call>",
        "<tool_call>look_up\n<arg_key>city</arg_key>\n<arg_value>Oslo\n</tool_call>",
        "<tool_call>\n</tool_call>",
    ],
    "harmony": [
        ' to=functions.look_up<|channel|>commentary json<|message|>{"city": ',
        " to=functions.look_up<|channel|>commentary json<|message|>[1]<|call|>",
        "<|channel|>commentary to=python<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.look_up",
    ],
    "braces": [
        '<|tool_call>call:look_up{city:<|"|>Oslo<|"|>',
        '<|tool_call>call:look_up{city:<|"|>Oslo}<tool_call|>',
        "<|tool_call>call:look_up{city:Oslo}<tool_call|>",
        "<|tool_call>call:look_up{day:3 share:1}<tool_call|>",
        "<|tool_call>call:look_up{3}<tool_call|>",
        "<|tool_call>look_up{}<tool_call|>",
        "<|tool_call>call:look_up{}}<tool_call|>",
        "<|tool_call>call:look_up{among:" + "[" * 500 + "]<tool_call|>",
    ],
    "Python": [
        "<|tool_call_start|>[look_up(city='Oslo')",
        "<|tool_call_start|>look_up(city='Oslo')<|tool_call_end|>",
        "<|tool_call_start|>[look_up('Oslo')]<|tool_call_end|>",
        "<|tool_call_start|>[look_up(city=__import__('os'))]<|tool_call_end|>",
        "<|tool_call_start|>[3]<|tool_call_end|>",
        "<|tool_call_start|>[look_up(city=" + "(" * 500 + ")]<|tool_call_end|>",
    ],
}
FORMATS = {
    "TaggedJson": "JSON",
    "BareJson": "bare JSON",
    "FunctionTags": "XML",
    "KeyValueTags": "key and value",
    "PythonCalls": "Python",
    "HarmonyCalls": "harmony",
    "GemmaCalls": "braces",
    "NoCalls": "none",
}


def format_of(name: str) -> str:
    return FORMATS[type(family_named(name).tool_calls).__name__]


@TOOLED
def test_a_broken_call_is_malformed_and_never_a_call(name: str) -> None:
    for text in MALFORMED[format_of(name)]:
        reply = family_named(name).tool_calls.parse(text, [TOOL])
        assert reply.malformed, text
        assert not reply.calls


@TOOLED
@settings(max_examples=40)
@given(text=st.text(max_size=60))
def test_any_text_at_all_is_parsed_without_an_error(name: str, text: str) -> None:
    parse = family_named(name).tool_calls.parse
    openings = (
        "",
        "<tool_call>",
        "<tool_call><function=f>",
        "<|tool_call_start|>[f(",
        " to=functions.f<|channel|>commentary<|message|>",
        "<|tool_call>call:f{a:",
    )
    for opening in openings:
        parse(opening + text, [TOOL])
        parse(opening + text + "</tool_call><|tool_call_end|>}<tool_call|>", [TOOL])


def own_texts(name: str) -> list[str]:
    return [text for model in TABLE[name].models if (text := trl_template(model))]


def first_prompt_differs(name: str, own: str, tools: list[dict[str, object]] | None) -> bool:
    """Whether the first prompt of the training template is another than that of the model's own."""
    codec = codec_of(name)
    for messages in ([QUESTION], [Message("system", "Be brief."), QUESTION]):
        chat = [codec._chat_message(message) for message in messages]
        ours, theirs = (
            codec.tokenizer.apply_chat_template(
                chat,
                tools=tools,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=True,
                date_string="26 Jul 2024",
            )
            for template in (codec.family.template, own.replace(*TODAY))
        )
        if ours != theirs:
            return True
    return False


@TOOLED
def test_the_first_prompt_is_the_one_of_the_models_own_template(name: str) -> None:
    for own in own_texts(name):
        assert not first_prompt_differs(name, own, [TOOL]), name
        assert not first_prompt_differs(name, own, None), name


@pytest.mark.parametrize("name", WITHOUT_TOOLS)
def test_without_tools_the_first_prompt_is_the_models_own(name: str) -> None:
    for own in own_texts(name):
        codec = codec_of(name)
        chat = [codec._chat_message(QUESTION)]
        ours, theirs = (
            codec.tokenizer.apply_chat_template(
                chat, chat_template=template, tokenize=False, add_generation_prompt=True
            )
            for template in (codec.family.template, own)
        )
        assert ours == theirs


@ALL
def test_the_family_is_recognised_by_its_models_own_templates_and_by_its_own(name: str) -> None:
    tokenizer = codec_of(name).tokenizer
    before = template_of(tokenizer)
    try:
        trained = family_named(name).template
        for own in [*own_texts(name), trained, without_generation_tags(trained)]:
            tokenizer.chat_template = "\n" + own.replace("\n", "\r\n")
            assert recognise(tokenizer).name == name
    finally:
        tokenizer.chat_template = before or None


def table() -> str:
    """Return the table of docs/families.md."""
    lines = ["| family | tier | calls | thinking | training template | tested vocabulary |"]
    lines.append("|---|---|---|---|---|---|")
    for name, entry in TABLE.items():
        family = family_named(name)
        thinking = ""
        if family.thinking:
            thinking = "on or off" if family.can_switch_thinking else "the model decides"
        source = "TRL" if entry.template.startswith("trl:") else "Sparring"
        vocabulary = "real" if name in REAL else "byte-level"
        cells = (f"`{name}`", entry.tier, format_of(name), thinking, source, vocabulary)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def test_the_page_has_the_table_of_these_checks() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    start, end = "<!-- families -->", "<!-- /families -->"
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(start)
    PAGE.write_text(f"{head}{start}\n{table()}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
