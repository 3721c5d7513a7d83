"""Compressed shards: every line is where the index says, and zstd reads the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.rollouts import Ending
from sparring.run_folder import shard_files
from sparring.run_folder.shard_files import (
    ENTRY_BYTES,
    ShardLines,
    compress,
    compressed_path,
    expand,
    find_digest,
    id_digest,
    is_compressed,
    line_places,
    pack_entry,
    plain_path,
    remove,
    unpack_entries,
)
from tests.rollouts import rollout

LINES = st.lists(st.binary(max_size=60).map(lambda each: each.replace(b"\n", b"") + b"\n"))


@given(
    st.sampled_from(sorted(Ending)),
    st.none() | st.sampled_from([0.0, 0.25, 1.0]),
    st.integers(0, 2**40),
    st.integers(1, 2**31),
)
def test_an_entry_survives_packing(
    ending: Ending, reward: float | None, offset: int, length: int
) -> None:
    made = rollout("answer", id="case", ending=ending, reward=reward)
    block = pack_entry(made, 1.5, offset=offset, length=length)
    assert len(block) == ENTRY_BYTES == 40
    (entry,) = unpack_entries(block + b"torn")
    assert (entry.ending, entry.reward, entry.seconds) == (ending, reward, 1.5)
    assert entry.id_digest == id_digest(made.id)
    assert line_places(block) == [(offset, offset + length)]


def test_an_id_is_found_where_an_entry_begins_and_nowhere_else() -> None:
    wanted, other = rollout("a", id="wanted"), rollout("a", id="other")
    decoy = pack_entry(other, 0.0, offset=id_digest(wanted.id), length=1)
    block = decoy + pack_entry(wanted, 0.0, offset=1, length=1)
    assert find_digest(block, wanted.id) == 1
    assert find_digest(decoy, wanted.id) is None


def write(folder: Path, lines: list[bytes]) -> bytes:
    whole = b"".join(lines)
    plain_path(folder, 0).write_bytes(whole)
    return whole


@settings(max_examples=60, deadline=None)
@given(lines=LINES, frame=st.integers(1, 200), data=st.data())
def test_any_range_of_a_compressed_shard_is_that_of_the_plain_one(
    lines: list[bytes], frame: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shard")
    whole = write(folder, lines)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shard_files, "_FRAME_BYTES", frame)
        compress(folder, 0)
        with ShardLines(folder, 0) as read:
            for _ in range(5):
                offset = data.draw(st.integers(0, len(whole)))
                length = data.draw(st.integers(0, len(whole) + 3))
                assert read.read(offset, length) == whole[offset : offset + length]
    with zstd.open(compressed_path(folder, 0)) as file:
        assert file.read() == whole
    expand(folder, 0)
    assert plain_path(folder, 0).read_bytes() == whole
    assert not is_compressed(folder, 0)


def test_shared_prompts_make_a_shard_many_times_smaller(tmp_path: Path) -> None:
    line = b'{"prompt": "' + bytes(range(65, 91)) * 100 + b'", "answer": %d}\n'
    whole = write(tmp_path, [line % number for number in range(500)])
    compress(tmp_path, 0)
    assert compressed_path(tmp_path, 0).stat().st_size < len(whole) / 20


def test_the_head_of_a_huge_line_is_read_without_the_rest(tmp_path: Path) -> None:
    huge = b"x" * 10_000_000 + b"\n"
    write(tmp_path, [b"small\n", huge, b"after\n"])
    compress(tmp_path, 0)
    with ShardLines(tmp_path, 0) as lines:
        assert lines.read(6, 1000) == huge[:1000]
        assert lines.read(6 + len(huge), 6) == b"after\n"
        assert lines.read(6, len(huge)) == huge


def test_a_reader_of_a_shard_is_not_disturbed_by_its_compression(tmp_path: Path) -> None:
    whole = write(tmp_path, [b"one\n", b"two\n"])
    with ShardLines(tmp_path, 0) as lines:
        compress(tmp_path, 0)
        assert lines.read(0, len(whole)) == whole
    with ShardLines(tmp_path, 0) as lines:
        assert lines.read(4, 4) == b"two\n"


def test_a_frame_gives_no_more_than_its_table_says(tmp_path: Path) -> None:
    frame = zstd.compress(b"x" * 50_000_000)
    compressed_path(tmp_path, 0).write_bytes(frame + shard_files._table([(len(frame), 100)]))
    with ShardLines(tmp_path, 0) as lines:
        assert lines.read(0, 1_000_000) == b"x" * 100


def test_a_file_that_is_no_shard_is_an_error(tmp_path: Path) -> None:
    compressed_path(tmp_path, 0).write_bytes(zstd.compress(b"one\n") + b"\0" * 20)
    with pytest.raises(ValueError, match="no seek table"):
        ShardLines(tmp_path, 0)
    remove(tmp_path, 0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        ShardLines(tmp_path, 0)
