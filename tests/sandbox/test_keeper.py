"""A keeper answers its worker line by line, and cleans up when the worker is gone.

Mounting needs a process of its own: test_keeper_client.py starts one.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring.sandbox import keeper

Serve = Callable[..., list[dict[str, Any]]]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Serve]:
    """Serves a worker that writes these lines and ends; the replies."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def serve(*lines: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        keeper.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    yield serve
    for number, handler in handlers.items():
        signal.signal(number, handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)


class Refusing:
    """A kernel that refuses namespaces."""

    def unshare(self, _: int) -> int:
        import ctypes

        ctypes.set_errno(1)
        return -1


def test_a_worker_that_ended_before_it_sent_its_folder_is_not_served(serve: Serve) -> None:
    assert serve() == []
    assert serve("not/absolute") == []


def test_when_the_worker_ends_its_processes_and_its_folder_go(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    (folder / "0" / "deep").mkdir(parents=True)
    (folder / "0" / "x").touch()
    left = subprocess.Popen(["tail", "-f", str(folder / "0" / "x")])
    assert serve(str(folder)) == [{}]
    assert left.wait(timeout=5) == -9
    assert not folder.exists()
    assert tmp_path.exists()


def test_signals_for_the_worker_do_not_end_its_keeper(serve: Serve, tmp_path: Path) -> None:
    serve(str(tmp_path / "worker"))
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}


def test_every_reply_carries_the_number_of_its_request(serve: Serve, tmp_path: Path) -> None:
    requests = [
        json.dumps({"do": "release", "workspace": number, "number": 7 + number})
        for number in range(3)
    ]
    replies = serve(str(tmp_path / "worker"), *requests)
    assert replies == [{}, {"number": 7}, {"number": 8}, {"number": 9}]


def test_a_workspace_that_cannot_be_created_is_an_error_and_not_the_end(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_libc", Refusing())
    hold = {"do": "hold", "workspace": 0, "bytes": 4096, "files": 1, "owner": None, "number": 1}
    release = {"do": "release", "workspace": 0, "number": 2}
    replies = serve(str(tmp_path / "worker"), json.dumps(hold), json.dumps(release))
    assert replies == [
        {},
        {"number": 1, "error": "PermissionError: [Errno 1] Operation not permitted"},
        {"number": 2},
    ]


def test_a_released_workspace_is_held_no_longer(tmp_path: Path) -> None:
    held = (os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY))
    workspaces = {3: held}
    assert keeper._handle({"do": "release", "workspace": 3}, tmp_path, workspaces, -1) == {}
    assert workspaces == {}
    for descriptor in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
