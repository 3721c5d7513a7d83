"""Compressed shards: every line is where the index says, and zstd reads the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.run_folder import shard_files
from sparring.run_folder.shard_files import (
    ShardLines,
    compress,
    compressed_path,
    expand,
    is_compressed,
    plain_path,
    remove,
)

LINES = st.lists(st.binary(max_size=60).map(lambda each: each.replace(b"\n", b"") + b"\n"))


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


def test_a_reader_goes_on_while_the_shard_is_compressed(tmp_path: Path) -> None:
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


def test_what_is_no_shard_is_an_error_and_not_other_lines(tmp_path: Path) -> None:
    compressed_path(tmp_path, 0).write_bytes(zstd.compress(b"one\n") + b"\0" * 20)
    with pytest.raises(ValueError, match="no seek table"):
        ShardLines(tmp_path, 0)
    remove(tmp_path, 0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        ShardLines(tmp_path, 0)
