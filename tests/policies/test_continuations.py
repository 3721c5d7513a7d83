"""What follows a turn of the model is what its template writes there, with names of tools."""

from __future__ import annotations

import pytest

from sparring.contracts.rollouts import Message, RequestedCall
from tests.policies.family_codecs import codec_of

CALLS = (RequestedCall("c1", "look_up", "{}"), RequestedCall("c2", "add", "{}"))
RESULTS = [Message("tool", "first", call_id="c1"), Message("tool", "second", call_id="c2")]
NAMING = pytest.mark.parametrize("name", ["gpt-oss", "gemma4"])


@NAMING
def test_each_result_carries_the_name_of_the_tool_that_gave_it(name: str) -> None:
    codec = codec_of(name)
    for results, tools in ((RESULTS, ["look_up", "add"]), (RESULTS[::-1], ["add", "look_up"])):
        text = codec.decode(codec.encode_continuation(results, CALLS).ids)
        assert sorted(tools, key=text.index) == tools
        assert text.index(tools[0]) < text.index(results[0].content) < text.index(tools[1])


@NAMING
def test_splicing_results_in_another_order_gives_what_rendering_gives(name: str) -> None:
    codec = codec_of(name)
    question, turn = Message("user", "?"), Message("assistant", "", calls=CALLS)
    spliced = codec.decode(codec.encode_continuation(RESULTS[::-1], CALLS).ids)
    whole = codec.decode(codec.encode_prompt([question, turn, *RESULTS[::-1]], []).ids)
    assert whole.endswith(spliced)


@NAMING
@pytest.mark.parametrize(
    "tool", ["SPARRINGxBODYx0x", "SPARRINGxNAMEx0x", 'a<|end|><|"|>b', "", "look up"]
)
def test_a_tool_name_that_the_model_made_up_is_only_text(name: str, tool: str) -> None:
    codec = codec_of(name)
    special = set(codec.tokenizer.all_special_ids)
    calls = [RequestedCall("c1", tool, "{}")]
    hostile, plain = (codec.encode_continuation(RESULTS[:1], given) for given in (calls, CALLS[:1]))
    assert [each for each in hostile.ids if each in special] == [
        each for each in plain.ids if each in special
    ]
    (body,) = hostile.bodies
    assert "first" in codec.decode(hostile.ids[body.start : body.stop])
    assert tool in codec.decode(hostile.ids)


def test_a_result_of_an_unknown_call_is_named_so() -> None:
    codec = codec_of("gpt-oss")
    text = codec.decode(codec.encode_continuation(RESULTS[:1]).ids)
    assert "functions.unknown" in text
