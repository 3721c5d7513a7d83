"""Chromium opens every screen of `sparring view`, uses it, and reports no error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.rollouts import Message
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event
from sparring.run_folder.files import append_line
from sparring.run_folder.rollout_log import RolloutWriter
from tests.surfaces.web.viewed import ROOT, TRAINING, copy_samples, make_training, played

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PROOF = "proof-bell-20261116-184334-e4fc"
CHECK = "check-bell-20261116-184209-e42b"
BELL = "bell-20261116-184334-e4fc"
STOPPED = "bell-20261116-184635-3ab8"
AUDIT = "audit-bell-20261116-184545-5817"

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: make chromium"),
]
HOSTILE = (
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
    "\x1b[31mred\x1b[0m \u202egnp.exe \u2066 ${window.owned = 1} {{owned}} javascript:owned"
)


def make_hostile(runs: Path) -> RunFolder:
    """A training run whose models, tools and cases write what could harm a viewer."""
    folder = make_training(runs, "hostile-1", steps=1)
    with RolloutWriter(folder.rollouts()) as writer:
        writer.append(
            played(
                "__proto__",
                1,
                0,
                is_right=False,
                answer=HOSTILE,
                messages=(
                    Message("user", HOSTILE, "constructor"),
                    Message("assistant", HOSTILE, "__proto__", thinking=HOSTILE),
                ),
            ),
            1.0,
        )
        long = Message("assistant", "x" * 10_000_000, "clerk")
        writer.append(played("long", 1, 0, is_right=False, messages=(long,)), 1.0)
        many = tuple(Message("user", f"message {n}", "clerk") for n in range(100_000))
        writer.append(played("many", 1, 0, is_right=False, messages=many), 1.0)
    append_line(folder.metrics, {"attempt": 1, "step": 9, "__proto__": 1.0, HOSTILE: 2.0})
    append_event(folder, "warning", author="worker", message=HOSTILE)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed") / "runs"
    copy_samples(folder)
    make_training(folder)
    make_hostile(folder)
    return folder


@pytest.fixture(scope="module")
def link(runs: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "sparring", "view", "--no-browser", "--runs", str(runs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=runs.parent)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    yield found.group()
    process.terminate()
    assert process.wait(20) is not None


class Browser:
    """A page, and what went wrong in it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, hash: str, wait: str) -> Any:
        self.page.goto(f"{self.base}/#{hash}")
        self.page.wait_for_selector(wait, timeout=20_000)
        return self.page

    def text(self) -> str:
        return str(self.page.inner_text("main"))


@pytest.fixture(scope="module")
def browser(link: str) -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
        opened = Browser(page, link.split("/enter")[0])
        page.goto(link)
        page.wait_for_selector(".top")
        yield opened
        assert not opened.errors
        assert all(url.startswith(opened.base) for url in opened.requests)
        chromium.close()


def test_the_list_shows_runs_and_keeps_its_filters_in_the_address(browser: Browser) -> None:
    page = browser.open("/", "text=shop-1")
    assert PROOF in browser.text()
    page.select_option("select[aria-label=Kind]", "check")
    page.wait_for_selector(f"text={CHECK}")
    assert "kind=check" in page.url
    assert TRAINING not in browser.text()
    page.reload()
    page.wait_for_selector(f"text={CHECK}")
    assert TRAINING not in browser.text()


def test_rows_are_opened_by_keyboard(browser: Browser) -> None:
    page = browser.open("/?kind=train&environment=shop", "text=shop-1")
    page.wait_for_selector("[role=row][aria-selected=true]")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1")
    assert "/run/" in page.url


def test_a_run_shows_its_curves_and_their_last_values(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}", "figure canvas")
    text = browser.text()
    assert "Reward" in text
    assert "Pass rate" in text
    assert page.locator("figure").count() >= 4
    assert "4 of 4" in " ".join(text.split())


def test_a_run_is_followed_live(browser: Browser, runs: Path) -> None:
    folder = make_training(runs, "live-1", steps=2)
    events = folder.events.read_text().splitlines()
    folder.events.write_text("\n".join(events[:-2]) + "\n")  # it is still running
    page = browser.open("/run/live-1", "figure canvas")
    append_line(folder.metrics, {"attempt": 1, "step": 3, "reward": 0.75, "rollouts": 4})
    page.wait_for_selector(".stat:has-text('Reward') >> text=0.75", timeout=5_000)
    shutil.rmtree(folder.path)


def test_rollouts_are_filtered_and_opened(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/rollouts", "[role=row] >> text=no number")
    assert "16 rollouts" in browser.text()
    page.select_option("select[aria-label=Verdict]", "passed")
    page.wait_for_selector("text=6 found in all 16")
    page.fill("#search", "lump")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=No rollout matches.")
    page.click("text=Clear")
    page.wait_for_selector("text=16 rollouts")
    page.locator("body").press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('Verdicts')")
    assert "lamps.0.1" in page.url


def test_a_rollout_shows_calls_with_results_verdicts_and_reasons(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/rollout/lamps.0.1", "h2:has-text('Verdicts')")
    text = browser.text()
    assert "no number in the answer" in text
    assert "no lump in the shop" in text
    assert 'item="lump"' in text.replace(" ", "")
    assert "−0.87" in text
    page.click("summary:has-text('Thinking')")
    page.wait_for_selector("text=I look it up.")
    page.keyboard.press("v")
    page.wait_for_selector(".tokens .token.sampled")
    assert page.locator(".token.sampled").count() == 3
    page.keyboard.press("v")
    page.wait_for_selector("pre >> text=judgements")
    page.keyboard.press("]")
    page.wait_for_selector("text=lamps.0.2")
    assert "/rollout/lamps.0.2" in page.url


def test_two_clicks_lead_from_the_list_to_the_reason(browser: Browser) -> None:
    page = browser.open("/?kind=train&environment=shop", "text=shop-1")
    page.click(f"a >> text={TRAINING}")
    page.click("text=Why? Compare side by side")
    page.wait_for_selector(".sibling")
    winner, loser = (page.locator(".sibling").nth(place).inner_text() for place in (0, 1))
    assert "the last number is 12" in winner
    assert "no number in the answer" in loser
    assert "this" in loser
    assert page.locator(".sibling >> nth=1 >> mark.differs").first.inner_text() == '"lump"'


def test_a_case_is_followed_over_the_steps(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/rollout/lamps.0.1", "text=This case over steps")
    page.keyboard.press(".")
    page.wait_for_selector("text=lamps.1.1")
    page.locator("input[type=range]").fill("3")
    page.wait_for_selector("text=lamps.3.1")
    page.wait_for_selector("text=step 3: 2 of 4 passed")
    page.locator("body").press(",")
    page.wait_for_selector("text=lamps.2.1")


def test_guards_and_checkpoints_are_on_the_time_line(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}", ".timeline")
    assert "guard entropy" in page.inner_text(".timeline")  # the last warning shows
    assert page.locator(".pin").count() == 2
    page.locator(".pin[aria-label*='checkpoint']").hover()
    page.wait_for_selector(".pin-text >> text=checkpoint at step 2")


def test_a_refused_clone_shows_the_reason_in_its_dialog(browser: Browser, runs: Path) -> None:
    page = browser.open(f"/run/{TRAINING}", "button:has-text('Clone')")
    before = sorted(path.name for path in runs.iterdir())
    page.click("button:has-text('Clone')")
    page.fill("dialog textarea", "max_steps")
    page.click("text=Start the clone")
    page.wait_for_selector("dialog [role=alert] >> text=write NAME=VALUE")
    page.fill("dialog textarea", "max_steps=3")
    page.click("text=Start the clone")
    page.wait_for_selector("dialog [role=alert] >> text=shop.py")
    page.click("dialog >> text=Cancel")
    assert page.locator("dialog[open]").count() == 0
    assert sorted(path.name for path in runs.iterdir()) == before
    browser.errors.clear()  # the console notes the status of the refusal


def test_two_runs_are_compared_case_by_case(browser: Browser) -> None:
    page = browser.open(f"/overlay?runs={BELL},{STOPPED}", "figure canvas")
    page.click("text=Compare them case by case")
    page.wait_for_selector(".pair-item")
    assert "Before is" in browser.text()


def test_an_audit_shows_what_it_found(browser: Browser) -> None:
    browser.open(f"/run/{AUDIT}", "text=Nothing found.")
    assert "96 judgements" in browser.text()


def test_a_group_is_compared_side_by_side(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/rollout/lamps.0.1", "text=Compare with its group")
    page.keyboard.press("g")
    page.wait_for_selector(".sibling")
    assert page.locator(".sibling").count() == 4
    assert "it carries a gradient" in browser.text()
    first = page.locator(".sibling").first.inner_text()
    assert "1.00" in first
    assert page.locator("mark.differs").first.inner_text() == '"lump"'


def test_a_proof_shows_its_verdict_and_its_pairs(browser: Browser) -> None:
    page = browser.open(f"/run/{PROOF}", "text=Before and after, on 24 held-out cases")
    assert "Not Shown" in browser.text() or "not shown" in browser.text().lower()
    page.click("text=See what changed")
    page.wait_for_selector(".pair-item")
    assert page.locator(".pair-item").count() == 24
    page.wait_for_selector("article >> text=0 calls, where one was needed")
    page.click("button:has-text('fixed')")
    page.wait_for_selector("text=No case here.")


def test_a_check_shows_its_verdict(browser: Browser) -> None:
    page = browser.open(f"/run/{CHECK}", "h2:has-text('Verdict')")
    assert "cut off by max_completion_length" in browser.text()
    page.click("text=a rollout that shows it >> nth=0")
    page.wait_for_selector("h2:has-text('Verdicts')")


def test_events_settings_checkpoints_and_logs_are_shown(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/events", ".event")
    assert "checkpoint" in browser.text()
    page = browser.open(f"/run/{TRAINING}/settings", "td:has-text('learning_rate')")
    assert "sparring.toml:3" in browser.text()
    browser.open(f"/run/{TRAINING}/checkpoints", "td:has-text('best')")
    page = browser.open(f"/run/{TRAINING}/logs", "pre.log")
    page.wait_for_selector("pre >> text=step 4/4")
    assert "␛[31mred" in browser.text()


def test_a_report_is_shown_and_saved_as_one_file(browser: Browser) -> None:
    page = browser.open(f"/run/{TRAINING}/report", ".report figure canvas")
    assert "Settings" in browser.text()
    with page.expect_download() as started:
        page.click("text=Save as one file")
    assert started.value.suggested_filename == f"{TRAINING}.html"
    assert f"<title>{TRAINING}</title>" in Path(started.value.path()).read_text()


def test_runs_are_laid_over_each_other(browser: Browser) -> None:
    page = browser.open("/?kind=train", "text=shop-1")
    for run in (TRAINING, BELL):
        page.check(f"input[aria-label='Choose {run}']")
    page.click("text=Overlay 2 runs")
    page.wait_for_selector("figure canvas")
    assert TRAINING in browser.text()
    assert BELL in browser.text()


def test_hostile_text_is_text(browser: Browser) -> None:
    page = browser.open("/run/hostile-1/rollouts", "[role=row] >> text=How many lamps >> nth=0")
    assert "7 rollouts" in browser.text()
    browser.open("/run/hostile-1/rollout/__proto__.1.0", "h2:has-text('Verdicts')")
    text = browser.text()
    assert "<script>window.owned" in text
    assert "⟨U+202E⟩" in text
    assert "␛[31m" in text
    assert page.evaluate("window.owned") is None
    assert page.locator("main script, main img").count() == 0
    browser.open("/run/hostile-1/rollout/long.1.0", "text=more characters")
    browser.open("/run/hostile-1/rollout/many.1.0", "text=Show 200 more of")
    browser.open("/run/hostile-1", "figure canvas")
    browser.open("/run/hostile-1/events", ".event >> text=<script>")
    assert page.evaluate("window.owned") is None


def test_filters_changed_before_an_answer_show_each_rollout_once(
    browser: Browser,
) -> None:
    page = browser.page
    browser.open(f"/run/{TRAINING}/rollouts", "[role=row] >> text=1.00")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/api/rollout.list*", hold)
    for place, (label, chosen) in enumerate((("Verdict", "failed"), ("Ending", "answered")), 1):
        page.get_by_label(label).select_option(chosen)
        deadline = time.monotonic() + 20
        while len(held) < place and time.monotonic() < deadline:
            page.wait_for_timeout(20)
        assert len(held) == place
    for route in held:
        with page.expect_response("**/api/rollout.list*"):
            route.continue_()
    page.unroute("**/api/rollout.list*")
    page.wait_for_selector("text=found in all")
    shown = page.locator("[role=rowgroup] a").evaluate_all("links => links.map(each => each.href)")
    assert len(shown) == len(set(shown)) > 0


def test_all_filters_typed_in_turn_apply(browser: Browser) -> None:
    page = browser.page
    browser.open(f"/run/{TRAINING}/rollouts", "[role=row] >> text=1.00")
    page.click("summary:has-text('More filters')")
    page.get_by_label("Reward ≥").fill("0")
    page.get_by_label("Reward ≤").fill("0.5")
    page.get_by_label("Verdict").select_option("failed")
    page.wait_for_selector("text=10 found in all 16")
    page.wait_for_url("**min_reward=0**max_reward=0.5**")
    page.get_by_label("Reward ≤").fill("1x")
    page.click("text=Clear")
    page.wait_for_selector("text=16 rollouts")
    for _ in range(2):  # the same filter again is searched again
        page.get_by_label("Verdict").select_option("failed")
        page.wait_for_selector("text=10 found in all 16")
        page.wait_for_selector(".loading", state="detached")
        page.get_by_label("Verdict").select_option("")
        page.wait_for_selector("text=16 rollouts")


@pytest.mark.skipif(not AXE.is_file(), reason="needs axe: make web")
@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.nightly),
        pytest.param(390, "light", marks=pytest.mark.nightly),
    ],
)
def test_axe_finds_nothing_serious(browser: Browser, width: int, theme: str) -> None:
    page = browser.page
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate("theme => localStorage.setItem('sparring-theme', theme)", theme)
    places = {
        "/": "text=shop-1",
        f"/run/{TRAINING}": "figure canvas",
        f"/run/{TRAINING}/rollouts": "[role=row] >> text=1.00",
        f"/run/{TRAINING}/rollout/lamps.0.1": "h2:has-text('Verdicts')",
        f"/run/{TRAINING}/rollout/lamps.0.1?view=tokens": ".token.sampled",
        f"/run/{TRAINING}/group/lamps.0.1": ".sibling",
        f"/run/{PROOF}/pairs": ".pair-item",
        f"/run/{TRAINING}/events": ".event",
        f"/run/{TRAINING}/settings": "table",
    }
    found = []
    page.goto("about:blank")
    for place, wait in places.items():
        browser.open(place, wait)
        page.evaluate(AXE.read_text())
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found += [
            f"{place}: {each['id']}: {each['nodes'][0]['html'][:160]}"
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    page.set_viewport_size({"width": 1280, "height": 800})
    assert not found, "\n".join(found)


def test_an_export_is_shown_without_a_server(browser: Browser, runs: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparring", "view", TRAINING, PROOF, "--held-out"]
    place = ["--export", str(tmp_path / "exported"), "--runs", str(runs)]
    subprocess.run([*command, *place], check=True, cwd=runs.parent)
    page = browser.page.context.browser.new_context().new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda each: each.type == "error" and errors.append(each.text))
    base = f"file://{tmp_path / 'exported' / 'index.html'}"
    for hash, wait in {
        "": "text=shop-1",
        f"#/run/{TRAINING}": "figure canvas",
        f"#/run/{TRAINING}/rollouts": "[role=row] >> text=1.00 >> nth=0",
        f"#/run/{TRAINING}/group/lamps.0.1": ".sibling",
        f"#/run/{TRAINING}/rollout/lamps.0.1?view=tokens": ".token.sampled",
        f"#/run/{PROOF}/pairs": ".pair-item",
    }.items():
        page.goto(base + hash)
        page.wait_for_selector(wait, timeout=20_000)
    assert not errors
    page.context.close()


def test_nothing_is_wider_than_a_phone(browser: Browser) -> None:
    page = browser.page
    page.set_viewport_size({"width": 390, "height": 800})
    for place, wait in {
        "/": "text=shop-1",
        f"/run/{TRAINING}": "figure canvas",
        f"/run/{TRAINING}/rollouts": "[role=row] >> text=1.00",
        f"/run/{TRAINING}/rollout/lamps.0.1": "h2:has-text('Verdicts')",
    }.items():
        browser.open(place, wait)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place
    page.set_viewport_size({"width": 1280, "height": 800})
