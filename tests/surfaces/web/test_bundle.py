"""The committed bundle is small, complete, and asks no other machine for anything."""

from __future__ import annotations

import gzip
import re

from sparring.operations.report_page import BUNDLE


def test_the_bundle_fits_into_its_budget() -> None:
    files = {path.name: path.read_bytes() for path in BUNDLE.iterdir()}
    assert set(files) == {"app.css", "app.js", "icon.svg", "index.html"}
    assert sum(len(gzip.compress(each)) for each in files.values()) <= 600_000


def test_the_page_loads_only_its_own_files() -> None:
    page = (BUNDLE / "index.html").read_text()
    assert re.findall(r'(?:src|href)="([^"]+)"', page) == ["./icon.svg", "./app.css", "./app.js"]
    assert "url(" not in (BUNDLE / "app.css").read_text()
