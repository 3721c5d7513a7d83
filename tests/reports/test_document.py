"""Reports: nothing in them is obeyed, and a browser shows all of them, wide and narrow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.summaries import CaseBand, Difference
from sparring.reports.document import (
    Column,
    Document,
    Folded,
    Grid,
    Heading,
    Paragraph,
    SideBySide,
    VerdictBlock,
)
from sparring.reports.pictures import Curve, case_bands, curves, intervals
from tests.summaries import complete

INTERVAL = {"low": -0.1, "high": 0.2, "value": 0.1}
CASE = {"low": 0.1, "high": 0.9, "passed": 1, "rollouts": 2}
HOSTILE = "_$\\frac{1}{$ <script>alert(1)</script>\"'><img src=x onerror=alert(2)>&{{7*7}}|`**"


def everything(text: str) -> Document:
    document = Document(text)
    document.add(
        Heading(text),
        Paragraph(text),
        VerdictBlock(text, text, "good"),
        Grid((text, "figures"), [(text, "1.0")]),
        SideBySide(text, [Column(text, [(text, text)])] * 2),
        Folded(text, [Paragraph(text)]),
        curves({text: [Curve(text, [1, 2], [0.1, 0.2])] * 2}),
        case_bands([complete(CaseBand, {**CASE, "case": text})], text),
        intervals({text: complete(Difference, INTERVAL)}, text),
    )
    return document


def test_what_models_wrote_is_text_and_nothing_else() -> None:
    html = everything(HOSTILE).html()
    assert "<script" not in html
    assert "onerror=alert(2)>" not in html
    assert "default-src 'none'" in html
    assert "http" not in html.replace("http-equiv", "")
    markdown = everything(HOSTILE).markdown()
    assert "<script>" not in markdown.replace("\\<", "").replace("\\>", "")


@given(st.text(max_size=60))
def test_any_text_makes_a_report(text: str) -> None:
    document = Document(text)
    document.add(Heading(text), Grid(("a", text), [(text, text)]), Paragraph(text))
    assert document.html().count("<table>") == 1
    assert document.markdown()


def test_pictures_are_the_same_each_time() -> None:
    made = [everything("the same").html() for _ in range(2)]
    assert made[0] == made[1]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("tone", ["light", "dark"])
def test_a_browser_shows_all_of_it(tmp_path: Path, width: int, tone: str) -> None:
    """Beside the text there is paper, to the left and to the right: nothing is cut or runs out."""
    from PIL import Image

    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium here: make chromium")
    page = tmp_path / "report.html"
    page.write_text(everything("A rather long name of something-that-has-no-spaces " * 4).html())
    # A window is never narrower than 500 pixels: the page is shown in a frame of the width.
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<body style='margin:0'><iframe src='{page.name}' width={width} height=3000 "
        "style='border:0'></iframe></body>"
    )
    shot = tmp_path / "shot.png"
    dark = ["--blink-settings=preferredColorScheme=0", "--force-dark-mode"]
    subprocess.run(
        [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--allow-file-access-from-files", f"--window-size={max(width, 500)},3000",
         f"--screenshot={shot}", *(dark if tone == "dark" else []), f"file://{frame}"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    pixels = np.asarray(Image.open(shot).convert("L"), dtype=int)[:, :width]
    paper = pixels[2, 2]
    assert (paper < 80) == (tone == "dark")
    differs = np.abs(pixels - paper) > 24
    assert differs.any(axis=0)[40 : width - 40].mean() > 0.7, "there is nothing to see"
    assert not differs[:, width - 6 :].any(), "something runs out at the right"
    assert not differs[:, :6].any()


def test_no_report_holds_what_a_terminal_would_obey():
    document = everything("\x1b[2J \x9b31m \u202eright to left \u2066 \x00")
    for text in (document.html(), document.markdown()):
        assert not set(text) & set("\x1b\x9b\u202e\u2066\x00")
