"""Forms are chosen by what the checkpoint has; sizes are estimated before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.ship_specs import Form
from sparring.shipping.artefacts import Artefact, chosen_forms, needed_bytes
from sparring.shipping.source import Source


def test_by_default_all_forms_are_written_that_the_checkpoint_has(
    source: Source, tiny_folder: Path
) -> None:
    assert chosen_forms((), source) == (Form.ADAPTER, Form.MERGED, Form.GGUF)
    whole = replace(source, checkpoint=tiny_folder)
    assert chosen_forms((), whole) == (Form.MERGED, Form.GGUF)
    assert chosen_forms((Form.OLLAMA,), whole) == (Form.GGUF, Form.OLLAMA)
    with pytest.raises(InvalidInput, match="has no adapter"):
        chosen_forms((Form.ADAPTER,), whole)


def test_the_estimate_covers_what_is_written(
    source: Source, artefacts: dict[str, Artefact]
) -> None:
    forms = (Form.ADAPTER, Form.MERGED, Form.GGUF)
    needed = needed_bytes(source, forms, ("f32", "f16", "q8_0"))
    written = sum(each.size for each in artefacts.values())
    assert written <= needed
    assert needed_bytes(source, forms, ("q4_k_m",)) > needed_bytes(source, (Form.ADAPTER,), ())
