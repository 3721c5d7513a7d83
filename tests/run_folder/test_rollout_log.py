from array import array
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    ResultBody,
    Rollout,
    Span,
    TokenKind,
    TokenRow,
    ToolCall,
)
from sparring.contracts.verdicts import Judgement, failed
from sparring.run_folder import rollout_log, shard_files
from sparring.run_folder.rollout_log import RolloutLog, RolloutWriter, cut_from_step
from tests.rollouts import rollout


def full_rollout(number: int = 0):
    row = TokenRow(
        "agent",
        array("i", [1, 2, 3, 4]),
        array("f", [-0.5]),
        (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 1), Span(TokenKind.OBSERVED, 1)),
        (ResultBody("add", 3, 4),),
    )
    return rollout(
        f"answer {number} \ud800",
        {"a": 1},
        id=f"case{number}",
        ending=Ending.TURN_LIMIT,
        detail="why",
        reward=0.25,
        rows=(row,),
        tools=(ToolCall("1", "add", "{}", "3", CallFailure.RAISED, "agent"),),
        messages=(
            Message("assistant", "hm", "agent", "thought", (RequestedCall("1", "add", "{}"),)),
            Message("tool", "3", call_id="1"),
        ),
        judgements=(Judgement("m", failed("no"), 1.0, 0.5, "broke"),),
    )


def ten() -> list[Rollout]:
    return [full_rollout(number) for number in range(10)]


def test_rollouts_are_read_back_by_range_across_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_log, "SHARD_ROLLOUTS", 4)
    with RolloutWriter(tmp_path) as writer:
        for number in range(10):
            writer.append(full_rollout(number), 1.5)
    log = RolloutLog(tmp_path)
    assert len(log) == 10
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == [
        "00000.jsonl.zst",
        "00001.jsonl.zst",
        "00002.jsonl",
    ]
    assert [record["case"]["id"] for record in log.records(3, 9)] == [
        f"case{number}" for number in range(3, 9)
    ]
    entry = next(iter(log.entries(7, 8)))
    assert (entry.ending, entry.reward, entry.seconds) == (Ending.TURN_LIMIT, 0.25, 1.5)
    assert log.find("case5.0.0")["case"]["id"] == "case5"


def cases(log: RolloutLog) -> list[str]:
    return [record["case"]["id"] for record in log.records()]


def test_a_log_continues_after_a_compressed_last_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_log, "SHARD_ROLLOUTS", 4)
    with RolloutWriter(tmp_path) as writer:
        for number in range(5):
            writer.append(full_rollout(number), 0.0)
    for path in tmp_path.glob("00001.*"):
        path.unlink()  # killed before the first line of the next shard
    with RolloutWriter(tmp_path) as writer:
        writer.append(full_rollout(4), 0.0)
    assert cases(RolloutLog(tmp_path)) == [f"case{number}" for number in range(5)]


@pytest.mark.parametrize("kept", range(10))
def test_a_log_that_is_cut_and_continued_equals_one_that_was_never_cut(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(rollout_log, "SHARD_ROLLOUTS", 4)
    played = [replace(each, key=replace(each.key, step=n)) for n, each in enumerate(ten())]
    for name, parts in (("whole", [played]), ("cut", [played, played[kept:]])):
        for number, part in enumerate(parts):
            if number:
                cut_from_step(tmp_path / name, kept)
                assert len(RolloutLog(tmp_path / name)) == kept
            with RolloutWriter(tmp_path / name) as writer:
                for each in part:
                    writer.append(each, 0.0)
    whole, cut = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("whole", "cut")
    )
    assert whole == cut


def test_a_cut_that_was_killed_is_completed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_log, "SHARD_ROLLOUTS", 4)
    played = [replace(each, key=replace(each.key, step=n)) for n, each in enumerate(ten())]
    with RolloutWriter(tmp_path) as writer:
        for each in played:
            writer.append(each, 0.0)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rollout_log, "remove", dies)
        with pytest.raises(KeyboardInterrupt):
            cut_from_step(tmp_path, 2)
    cut_from_step(tmp_path, 2)
    assert len(RolloutLog(tmp_path)) == 2
    assert {path.stem.partition(".")[0] for path in tmp_path.iterdir()} == {"00000"}


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_writer_that_dies_while_it_compresses_loses_nothing(tmp_path, monkeypatch, calls):
    monkeypatch.setattr(rollout_log, "SHARD_ROLLOUTS", 4)
    left = iter([True] * calls)

    def dying(call: Any) -> Any:
        def called(*given: Any, **options: Any) -> Any:
            if not next(left, False):
                raise KeyboardInterrupt
            return call(*given, **options)

        return called

    with monkeypatch.context() as patched:
        for owner, name in (
            (shard_files.os, "fsync"),
            (shard_files.Path, "rename"),
            (shard_files.Path, "unlink"),
            (shard_files, "sync_folder"),
            (shard_files, "_table"),
        ):
            patched.setattr(owner, name, dying(getattr(owner, name)))
        written = 0
        with suppress(KeyboardInterrupt):
            writer = RolloutWriter(tmp_path)
            for each in ten():
                writer.append(each, 0.0)
                written += 1
    log = RolloutLog(tmp_path)
    assert len(log) >= written
    with RolloutWriter(tmp_path) as writer:
        for each in ten()[len(log) :]:
            writer.append(each, 0.0)
    assert cases(log) == [f"case{number}" for number in range(10)]
    assert {path.name for path in tmp_path.glob("*.jsonl*")} - {"00000.jsonl.partial"} <= {
        "00000.jsonl.zst",
        "00001.jsonl.zst",
        "00002.jsonl",
        "00001.jsonl.partial",
    }


def test_reading_a_page_reads_no_other_line(tmp_path):
    with RolloutWriter(tmp_path) as writer:
        for number in range(5):
            writer.append(full_rollout(number), 0.0)
    log = RolloutLog(tmp_path)
    keep = next(iter(log.entries(3, 4)))
    data = tmp_path / "00000.jsonl"
    text = data.read_bytes()
    data.write_bytes(b"#" * keep.offset + text[keep.offset : keep.offset + keep.length])
    assert next(log.records(3, 4))["case"]["id"] == "case3"


@pytest.mark.parametrize("cut", [1, 17, 39])
def test_a_torn_tail_is_cut_off_and_the_log_continues(tmp_path, cut):
    with RolloutWriter(tmp_path) as writer:
        for number in range(3):
            writer.append(full_rollout(number), 0.0)
    whole = (tmp_path / "00000.jsonl").read_bytes()
    index = tmp_path / "00000.idx"
    index.write_bytes(index.read_bytes()[:-cut])  # killed while writing the entry
    with RolloutWriter(tmp_path) as writer:
        writer.append(full_rollout(2), 0.0)
    assert (tmp_path / "00000.jsonl").read_bytes() == whole
    assert len(RolloutLog(tmp_path)) == 3


def test_a_line_without_an_index_entry_does_not_exist(tmp_path):
    with RolloutWriter(tmp_path) as writer:
        writer.append(full_rollout(0), 0.0)
    with (tmp_path / "00000.jsonl").open("ab") as file:
        file.write(b'{"half":')
    assert len(list(RolloutLog(tmp_path).records())) == 1
    with RolloutWriter(tmp_path) as writer:
        writer.append(full_rollout(1), 0.0)
    assert [record["case"]["id"] for record in RolloutLog(tmp_path).records()] == ["case0", "case1"]


def test_an_unscored_rollout_has_no_reward_in_the_index(tmp_path):
    with RolloutWriter(tmp_path) as writer:
        writer.append(replace(full_rollout(), reward=None), 0.0)
    assert next(iter(RolloutLog(tmp_path).entries())).reward is None


def test_an_unknown_rollout_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(InvalidInput, match="rollout list"):
        RolloutLog(tmp_path).find("nobody")


def test_a_log_whose_data_is_shorter_than_its_index_loses_only_what_is_gone(tmp_path):
    with RolloutWriter(tmp_path) as writer:
        for number in range(3):
            writer.append(full_rollout(number), 0.0)
    data = tmp_path / "00000.jsonl"
    whole = data.read_bytes()
    data.write_bytes(whole[:-10])  # as after a power cut
    with RolloutWriter(tmp_path) as writer:
        writer.append(full_rollout(2), 0.0)
    assert data.read_bytes() == whole


def test_a_cut_after_a_power_loss_keeps_only_lines_that_are_whole(tmp_path):
    with RolloutWriter(tmp_path) as writer:
        for number in range(3):
            writer.append(full_rollout(number), 0.0)
    data = tmp_path / "00000.jsonl"
    data.write_bytes(data.read_bytes()[:-10])
    cut_from_step(tmp_path, 99)
    log = RolloutLog(tmp_path)
    assert len(list(log.records())) == len(log) == 2
    assert b"\0" not in data.read_bytes()
