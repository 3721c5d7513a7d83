"""Chromium opens reports from disk, without a network, on any screen, and prints them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring.operations.reporting import CompareRuns, compare_runs, report_run
from sparring.operations.run_views import RunQuery
from tests.operations.test_report_page import make_proof
from tests.surfaces.web.viewed import ROOT, TRAINING, copy_samples, make_training, owner_in

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SHOWN = {
    "train": (TRAINING, "figure canvas"),
    "prove": (f"proof-{TRAINING}", "text=Cases that flipped: 14, of which 12 are shown"),
    "check": ("check-bell-20261116-184209-e42b", "text=Pass rate of each case"),
    "audit": ("audit-bell-20261116-184545-5817", "text=Nothing found."),
    "ship": ("ship-bell-20261116-091000-f21e", "text=Files compared with the checkpoint"),
    "eval": ("bell-20261116-184053-77fe", "h2:has-text('Measures')"),
    "comparison": ("", "text=compared with"),
}

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: make chromium"),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reported")
    copy_samples(folder / "runs")
    make_training(folder / "runs")
    make_proof(folder / "runs")
    owner = owner_in(folder)
    made = {
        kind: Path(report_run(RunQuery(run=run), owner).html)
        for kind, (run, _) in SHOWN.items()
        if run
    }
    runs = ("bell-20261116-184334-e4fc", "bell-20261116-184635-3ab8")
    return made | {"comparison": Path(compare_runs(CompareRuns(runs=runs), owner).html)}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.mark.parametrize("kind", SHOWN)
def test_a_report_opens_from_disk_on_any_screen_and_prints(
    reports: dict[str, Path], chromium: Any, kind: str
) -> None:
    assert reports[kind].stat().st_size < 1_000_000
    errors: list[str] = []
    requests: list[str] = []
    context = chromium.new_context(offline=True, color_scheme="dark")
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda each: each.type == "error" and errors.append(each.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(reports[kind].as_uri())
    page.wait_for_selector(SHOWN[kind][1], timeout=20_000)
    for width, theme in ((2560, "dark"), (400, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        page.wait_for_selector(f"html[data-theme={theme}]")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not violations(page)
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert not errors
    own = (reports[kind].as_uri(), "data:", "blob:")
    assert all(each.startswith(own) for each in requests)
    context.close()


def violations(page: Any) -> list[str]:
    """What axe finds, where it is installed; a page of 2,560 pixels is like one of 1,280."""
    if not AXE.is_file() or page.viewport_size["width"] > 2000:
        return []
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:160]}"
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_a_dark_screen_is_printed_in_light_colours(reports: dict[str, Path], chromium: Any) -> None:
    context = chromium.new_context(offline=True, color_scheme="dark")
    page = context.new_page()
    page.goto(reports["train"].as_uri())
    page.wait_for_selector("figure canvas", timeout=20_000)
    theme = "document.documentElement.dataset.theme"
    seen = f"window.addEventListener('beforeprint', () => window.printed = {theme})"
    assert page.evaluate(theme) == "dark"
    page.evaluate(seen)
    page.pdf(format="A4")
    assert page.evaluate("window.printed") == "light"
    assert page.evaluate(theme) == "dark"
    context.close()


def test_groups_and_rollouts_of_a_report_can_be_opened(
    reports: dict[str, Path], chromium: Any
) -> None:
    page = chromium.new_context(offline=True).new_page()
    base = reports["train"].as_uri()
    for place, wait in {
        f"#/run/{TRAINING}/rollouts": "[role=row] >> text=1.00 >> nth=0",
        f"#/run/{TRAINING}/rollout/lamps.0.1": "h2:has-text('Verdicts')",
        f"#/run/{TRAINING}/group/lamps.0.2": ".sibling",
        f"#/run/{TRAINING}/settings": "td:has-text('learning_rate')",
        "#/": ".report",
    }.items():
        page.goto(base + place)
        page.wait_for_selector(wait, timeout=20_000)
    page.context.close()
