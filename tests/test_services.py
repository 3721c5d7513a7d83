"""Services start in order, are ready before they are used, and end with what needed them."""

from __future__ import annotations

import http.server
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparring import Service
from sparring.contracts.errors import ServiceFailed
from sparring.services import LogOf, free_port, is_ready, running, start, wait_until_ready

SERVER = """
    import sys, http.server
    print("starting", flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])),
                                    http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def service(name: str, program: str, **options: Any) -> Service:
    command = [sys.executable, "-c", textwrap.dedent(program), "{port}"]
    return Service(name, command, **options)


def logs_in(folder: Path) -> LogOf:
    return lambda name: folder / f"{name}.log"


@pytest.mark.parametrize("ready", [{}, {"ready_http": "/"}, {"ready_line": "starting"}])
def test_a_service_is_there_while_it_is_needed_and_gone_afterwards(
    tmp_path: Path, ready: dict[str, str]
) -> None:
    with running([service("web", SERVER, **ready)], logs_in(tmp_path), tmp_path) as addresses:
        deadline = time.monotonic() + 10
        while True:
            try:
                response = urllib.request.urlopen(f"http://{addresses['web']}/", timeout=5)
                break
            except OSError:  # with ready_line it may have printed the line a moment too early
                assert time.monotonic() < deadline
        assert response.status == 200
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{addresses['web']}/", timeout=5)


def test_a_service_that_never_becomes_ready_fails_with_its_last_lines(tmp_path: Path) -> None:
    waiting = service("db", "print('no disk left', flush=True); import time; time.sleep(60)",
                      seconds=1)  # fmt: skip
    with (
        pytest.raises(ServiceFailed, match=r"(?s)db was not ready within 1 s.*no disk left"),
        running([waiting], logs_in(tmp_path), tmp_path),
    ):
        raise AssertionError("never here")
    assert not [each for each in psutil.Process().children() if "no disk" in str(each.cmdline())]


def test_a_service_that_dies_is_named_with_its_exit_code_and_last_lines(tmp_path: Path) -> None:
    dying = service("db", "raise SystemExit('bad password')")
    with (
        pytest.raises(ServiceFailed, match=r"(?s)db ended with exit code 1.*bad password"),
        running([dying], logs_in(tmp_path), tmp_path),
    ):
        raise AssertionError("never here")


def test_services_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    note = f"""
        import signal, sys, time
        def note(what):
            with open({str(tmp_path / "order")!r}, "a") as file:
                file.write(sys.argv[2] + " " + what + "\\n")
        def end(*_):
            note("ended")
            sys.exit()
        signal.signal(signal.SIGTERM, end)
        note("began")
        print("up", flush=True)
        time.sleep(60)
    """
    both = [
        Service(
            name, [sys.executable, "-c", textwrap.dedent(note), "{port}", name], ready_line="up"
        )
        for name in ("first", "second")
    ]
    with running(both, logs_in(tmp_path), tmp_path):
        pass
    assert (tmp_path / "order").read_text().split("\n")[:4] == [
        "first began", "second began", "second ended", "first ended"
    ]  # fmt: skip


def test_a_command_that_does_not_exist_is_a_service_that_cannot_be_started(tmp_path: Path) -> None:
    missing = Service("db", [str(tmp_path / "no-such-program")])
    with pytest.raises(ServiceFailed, match=r"service db cannot be started: .*no-such-program"):
        start(missing, tmp_path / "logs" / "db.log", tmp_path)


def test_a_service_runs_in_its_folder_with_its_environment_and_its_port(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    telling = service("db", "import os, sys; print(os.getcwd(), sys.argv[1], os.environ.get('A'))")
    started = start(telling, tmp_path / "db.log", tmp_path / "home", environment={"A": "b"})
    assert started.process.wait(10) == 0
    assert started.log.read_text().split() == [str(tmp_path / "home"), str(started.port), "b"]
    assert started.address == f"127.0.0.1:{started.port}"


def test_waiting_ends_without_an_error_where_the_caller_gives_up(tmp_path: Path) -> None:
    silent = service("db", "import time; time.sleep(60)", ready_line="never")
    started = start(silent, tmp_path / "db.log", tmp_path)
    try:
        wait_until_ready(started, give_up=lambda: True)
        assert started.process.poll() is None
        assert not started.is_ready
    finally:
        started.process.kill()
        started.process.wait()


def test_only_the_last_lines_of_a_log_are_shown(tmp_path: Path) -> None:
    dying = service("db", "print(*range(100, 200), sep='\\n')")
    with (
        pytest.raises(ServiceFailed, match=r"(?s)db\.log:\n  185\n.*\n  199$") as failure,
        running([dying], lambda _: tmp_path / "db.log", tmp_path),
    ):
        raise AssertionError("never here")
    assert "184" not in str(failure.value).splitlines()


# ------------------------------------------------------------------ when a service is ready


class Answers(http.server.BaseHTTPRequestHandler):
    """Has one page."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/up" else 503)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "is_up"), [("/up", True), ("up", True), ("/down", False), ("/a b", False)]
)
def test_a_service_is_ready_once_its_page_answers_with_success(
    port: int, tmp_path: Path, path: str, is_up: bool
) -> None:
    assert is_ready(service("web", "", ready_http=path), port, tmp_path / "log") is is_up


def test_a_proxy_is_not_used_for_a_service_on_this_machine(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert is_ready(service("web", "", ready_http="/up"), port, tmp_path / "log")


def test_a_service_without_a_condition_is_ready_once_it_accepts_connections(
    port: int, tmp_path: Path
) -> None:
    assert is_ready(service("web", ""), port, tmp_path / "log")
    assert not is_ready(service("web", ""), free_port(), tmp_path / "log")
    assert not is_ready(service("web", "", ready_http="/up"), free_port(), tmp_path / "log")


def test_a_line_with_the_port_is_looked_for_with_the_port_in_place(tmp_path: Path) -> None:
    listening = service("db", "", ready_line="listening on {port}")
    log = tmp_path / "db.log"
    assert not is_ready(listening, 4000, log), "there is no log yet"
    log.write_bytes(b"\xff\xfe listening on 5000\n")
    assert is_ready(listening, 5000, log)
    assert not is_ready(listening, 4000, log)
