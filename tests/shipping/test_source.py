"""The checkpoint's own template is shipped, and its base is named as others can find it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.policies.families import family_named
from sparring.shipping.source import (
    Source,
    base_licence,
    context_length,
    is_public,
    open_source,
    read_front_matter,
    shipped_dtype,
    with_front_matter,
)

TEXT = st.text(st.characters(categories=("L", "N", "P")), max_size=20)
VALUES = st.dictionaries(
    st.text("abc_", min_size=1, max_size=5), st.one_of(TEXT, st.lists(TEXT, max_size=3)), min_size=1
)


@given(VALUES)
def test_front_matter_is_read_as_it_was_written(metadata: dict[str, object]) -> None:
    assert read_front_matter(with_front_matter(metadata, "# text\n")) == metadata


def test_a_card_without_metadata_or_with_broken_metadata_has_none() -> None:
    for text in ("# text", "---\nopen: [", "---\na: [1\n---\n", "---\n- list\n---\n", ""):
        assert read_front_matter(text) == {}


def test_the_template_is_the_saved_one_not_todays(source: Source, tmp_path: Path) -> None:
    import shutil

    old = shutil.copytree(source.checkpoint, tmp_path / "old")
    (old / "chat_template.jinja").write_text("old " + family_named("qwen3").template)
    opened = open_source(old, source.base, None)
    assert opened.template.startswith("old ")
    assert opened.codec().family.template == opened.template


def test_a_base_is_public_if_it_is_a_repository_and_no_folder(tmp_path: Path) -> None:
    assert is_public("Qwen/Qwen3-0.6B")
    for name in ("tiny", "/models/x", "./a/b", str(tmp_path)):
        assert not is_public(name)


def test_facts_of_the_base_are_read_from_its_folder(source: Source, tmp_path: Path) -> None:
    assert shipped_dtype(source) == "float32"
    assert context_length(source) == 4096
    assert source.base_name == Path(source.base).name
    assert base_licence(source) == ""
    assert base_licence(replace(source, base="smollm2")) == "apache-2.0"
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    assert base_licence(replace(source, base_place=str(tmp_path))) == "mit"


def test_a_dtype_that_cannot_be_written_is_refused(source: Source, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dtype": "float8_e4m3fn"}')
    with pytest.raises(Exception, match="stored as float8_e4m3fn"):
        shipped_dtype(replace(source, base_place=str(tmp_path)))
