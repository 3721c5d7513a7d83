from __future__ import annotations

import json

import pytest
from agents import Agent

from sparring import Suite
from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Ending, Message, RequestedCall
from sparring.contracts.specs import Limits
from sparring.contracts.verdicts import Judgement, failed, passed
from sparring.learning.demonstrations import KnownCases, completion_tokens, from_file, from_run
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import RolloutWriter
from tests.rollouts import call, play_script, rollout

SPLITS = {"one": "training", "two": "training", "three": "validation", "four": "held-out"}


@pytest.fixture
def cases():
    return KnownCases(
        Suite.from_records(
            [{"input": text, "id": text, "split": split} for text, split in SPLITS.items()],
            id="id",
            minimum_cases=1,
        )
    )


def written(tmp_path, *records):
    path = tmp_path / "shown.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def chat(question="one", *replies):
    turns = replies or ({"role": "assistant", "content": "yes"},)
    return {"messages": [{"role": "user", "content": question}, *turns]}


def test_turns_of_the_assistant_are_taken_from_the_chat_format(tmp_path, cases):
    call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    path = written(
        tmp_path,
        chat(
            "one",
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "made up"},
            {"role": "assistant", "content": "2"},
        ),
    )
    (shown,) = from_file(path, cases).demonstrations
    assert shown.case.id == "one"
    assert shown.turns == (
        Message("assistant", "", calls=(RequestedCall("0", "add", '{"a": 1}'),)),
        Message("assistant", "2"),
    )


def test_demonstrations_of_validation_and_held_out_cases_are_left_out(tmp_path, cases):
    found = from_file(written(tmp_path, chat("one"), chat("three"), chat("four")), cases)
    assert [each.case.id for each in found.demonstrations] == ["one"]
    assert found.left_out == {"held back for judging": 2}


def test_a_question_is_known_again_behind_examples_and_however_it_is_spaced(tmp_path):
    examples = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    records = [
        {"input": [*examples, {"role": "user", "content": text}], "id": text, "split": split}
        for text, split in SPLITS.items()
    ]
    known = KnownCases(Suite.from_records(records, id="id", minimum_cases=1))
    found = from_file(written(tmp_path, chat(" One "), chat("four"), chat("Four ")), known)
    assert [each.case.id for each in found.demonstrations] == ["one"]
    assert found.left_out == {"held back for judging": 2}


def test_an_input_can_stand_beside_the_messages(tmp_path, cases):
    record = {"input": "one", "messages": [{"role": "assistant", "content": "yes"}]}
    (shown,) = from_file(written(tmp_path, record), cases).demonstrations
    assert shown.case.id == "one"


def test_separators_inside_of_a_text_do_not_end_a_line(tmp_path, cases):
    path = tmp_path / "shown.jsonl"
    reply = {"role": "assistant", "content": "a\u2028b\x85c"}
    path.write_text(json.dumps(chat("one", reply), ensure_ascii=False), encoding="utf-8")
    (shown,) = from_file(path, cases).demonstrations
    assert shown.turns[0].content == "a\u2028b\x85c"


@pytest.mark.parametrize("broken", [b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_holds_no_demonstrations_is_refused_by_its_path(tmp_path, cases, broken):
    path = tmp_path / "shown.jsonl"
    path.write_bytes(broken)
    with pytest.raises(InvalidInput, match=r"shown\.jsonl"):
        from_file(path, cases)


def test_an_input_that_is_no_case_becomes_one(tmp_path, cases):
    (shown,) = from_file(written(tmp_path, chat("five") | {"expected": 5}), cases).demonstrations
    assert (shown.case.input, shown.case.expected) == ("five", 5)


def test_equal_demonstrations_of_a_case_count_once(tmp_path, cases):
    found = from_file(written(tmp_path, chat("one"), chat("one"), chat("two")), cases)
    assert len(found.demonstrations) == 2


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([1], "an object with a list of `messages`"),
        ({"messages": "hello"}, "an object with a list of `messages`"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "0 user messages"),
        ({"messages": [{"role": "user", "content": "one"}]}, "no assistant message"),
        (chat("one", {"role": "assistant", "content": 3}), "must be text"),
        (chat("one", {"role": "assistant", "tool_calls": [{}]}), "has no function name"),
        (chat("one", {"role": "assistant", "tool_calls": ["x"]}), "has no function name"),
        (chat("one", {"role": "assistant", "tool_calls": 5}), "has no function name"),
        (
            chat("one", {"role": "assistant", "tool_calls": [{"function": "x"}]}),
            "has no function name",
        ),
    ],
)
def test_a_record_that_cannot_be_used_is_named_by_file_and_line(tmp_path, cases, record, problem):
    with pytest.raises(InvalidInput, match=f"shown.jsonl, line 2: .*{problem}"):
        from_file(written(tmp_path, chat("one"), record), cases)


def test_a_line_that_is_no_json_is_named(tmp_path, cases):
    path = tmp_path / "shown.jsonl"
    path.write_text("{")
    with pytest.raises(InvalidInput, match="line 1: not JSON"):
        from_file(path, cases)


def test_of_a_run_only_passing_rollouts_on_training_cases_are_taken(tmp_path, cases):
    folder = RunFolder(tmp_path / "run")

    def played(case, verdict):
        example = (Message("user", "worked example"), Message("assistant", "no"))
        messages = (*example, Message("user", case), Message("assistant", "yes"))
        judged = (Judgement("right", verdict, 1.0),)
        return rollout("yes", id=case, messages=messages, turns=1, judgements=judged)

    with RolloutWriter(folder.rollouts()) as writer:
        for case in SPLITS:
            writer.append(played(case, passed("good")), 0.0)
        writer.append(played("two", failed("bad")), 0.0)
    found = from_run(folder, cases)
    assert [each.case.id for each in found.demonstrations] == ["one", "two"]
    assert {each.turns for each in found.demonstrations} == {(Message("assistant", "yes"),)}
    assert found.left_out == {"did not pass": 1, "not on training cases": 2}


def test_the_budget_that_a_demonstration_needs_counts_the_rows_of_all_its_agents(codecs):
    specialist = Agent(name="specialist", instructions="Answer.")
    writer = Agent(name="desk", instructions="Hand off.", handoffs=[specialist])
    replies = [call("transfer_to_specialist"), "the answer"]
    played = play_script(writer, replies, codecs["qwen3"])
    needed = completion_tokens(played)
    assert len(played.rows) == 2
    fits = play_script(writer, replies, codecs["qwen3"], limits=Limits(completion_tokens=needed))
    cut = play_script(writer, replies, codecs["qwen3"], limits=Limits(completion_tokens=needed - 1))
    assert (fits.ending, cut.ending) == (Ending.ANSWERED, Ending.TOKEN_BUDGET)
