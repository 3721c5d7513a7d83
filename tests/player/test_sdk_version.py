"""A version of the agents SDK that was not tested is warned of, once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from sparring.player import sdk_version
from sparring.player.sdk_version import formats_exceptions, warn_if_untested_version


@pytest.fixture(autouse=True)
def unwarned() -> Iterator[None]:
    warn_if_untested_version.cache_clear()
    yield
    warn_if_untested_version.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    monkeypatch.setattr(sdk_version, "version", lambda _: installed)


@pytest.mark.parametrize("installed", ["0.21.9", "0.25.0", "1.0.0", "0.100.1"])
def test_a_version_outside_of_the_tested_ones_is_named_once(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    install(monkeypatch, installed)
    with pytest.warns(RuntimeWarning, match=rf"openai-agents 0\.22 to 0\.24, but {installed}"):
        warn_if_untested_version()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested_version()


@pytest.mark.parametrize("installed", ["0.22.0", "0.23.4", "0.24.99"])
def test_a_tested_version_is_not_warned_of(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    install(monkeypatch, installed)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_if_untested_version()
    assert seen == []


def test_the_installed_version_decides_who_formats_exceptions() -> None:
    numbers = tuple(map(int, sdk_version.version("openai-agents").split(".")[:2]))
    assert formats_exceptions() == (numbers >= (0, 24))
