"""The beginning of a long record is read as far as it is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Message
from sparring.run_folder.files import dump_line
from sparring.run_folder.record_heads import HEAD_BYTES, read_head
from sparring.run_folder.records import to_record
from sparring.run_folder.rollout_log import RolloutLog, RolloutWriter
from tests.rollouts import rollout

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(fields=st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), values, max_size=6))
def test_a_complete_record_is_read_whole(fields: dict[str, Any]) -> None:
    head = read_head(dump_line(fields))
    for name, value in fields.items():
        if name != "case":
            assert head[name] == json.loads(json.dumps(value))


@given(size=st.integers(0, 400))
def test_a_record_cut_anywhere_has_the_fields_before_the_cut(size: int) -> None:
    record = to_record(rollout("an answer", id="c", messages=(Message("user", "x" * 100),)))
    head = read_head(dump_line(record)[:size])
    for name, value in head.items():
        if name not in ("is_cut", "case") and value:
            assert value == record[name]
    assert head["case"]["id"] in ("", "c")


def test_a_list_reads_little_of_a_long_line(tmp_path: Path) -> None:
    with RolloutWriter(tmp_path) as writer:
        writer.append(rollout("short", id="a"), 1.0)
        writer.append(rollout("short", id="b", messages=(Message("user", "x" * HEAD_BYTES),)), 1.0)
    items = list(RolloutLog(tmp_path).items(heads=True))
    assert [item.record["answer"] for item in items] == ["short", "short"]
    assert "is_cut" not in items[0].record
    assert items[1].record["is_cut"]
    assert items[1].record["case"]["id"] == "b"
