"""Environments: config, parts, workspaces, services."""

from __future__ import annotations

import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from pydantic import Field

from sparring import Environment, Service
from sparring.contracts.errors import InvalidInput, ServiceFailed, SettingError
from sparring.environments import load_environment
from sparring.environments.workspace import Workspace
from sparring.sandbox import probe
from sparring.services import running


class Sized(Environment):
    """Has a size."""

    class Config(Environment.Config):
        size: int = Field(3, ge=1)


def test_config_is_checked_and_frozen():
    assert Sized().config.size == 3
    assert Sized(size=5).config.size == 5
    with pytest.raises(SettingError, match=r"config\.size: Input should be greater"):
        Sized(size=0)
    with pytest.raises(SettingError, match=r"config\.sise: Extra inputs.*its fields: size"):
        Sized(sise=4)
    with pytest.raises(ValueError, match="frozen"):
        Sized().config.size = 4


def test_it_is_loaded_from_its_file_with_its_config(tmp_path):
    file = tmp_path / "e.py"
    file.write_text(
        "from sparring import Environment\n"
        "class E(Environment):\n"
        "    class Config(Environment.Config):\n"
        "        size: int = 3\n"
        "made = E(size=9)\n"
    )
    assert load_environment(f"{file}:E", {"size": 4}).config.size == 4
    assert load_environment(f"{file}:made").config.size == 9
    with pytest.raises(SettingError, match="name the class"):
        load_environment(f"{file}:made", {"size": 4})


def test_an_init_that_forgets_the_config_is_told_what_to_do(tmp_path):
    file = tmp_path / "f.py"
    file.write_text(
        "from sparring import Environment\n"
        "class F(Environment):\n    def __init__(self):\n        pass\n"
    )
    with pytest.raises(InvalidInput, match=r"hand it on to super\(\)"):
        load_environment(f"{file}:F", {"size": 4})


@pytest.mark.skipif(not probe().works, reason=probe().why_not)
def test_a_workspace_has_five_tools_and_tells_a_measure_what_is_left():
    workspace = Workspace({"in.txt": "3\n"})
    assert workspace.read_file("in.txt") == "3\n"
    assert workspace.run_python("print(open('in.txt').read().strip() * 2)") == "33"
    assert workspace.write_file("out.txt", "hello") == "wrote out.txt"
    assert workspace.run_shell("cat out.txt; false") == "hello\n(exit code 1)"
    assert workspace.list_files() == "in.txt\nout.txt"
    assert workspace.read_file("nothing") == "there is no file nothing"
    assert "leads out" in workspace.read_file("../../etc/passwd")
    assert workspace.run_shell("true") == "(it printed nothing)"
    assert workspace.has("out.txt")
    assert not workspace.has("nothing")
    workspace.after_rollout()
    assert not workspace.sandbox.root.exists()


# ------------------------------------------------------------------ services

SERVER = """
    import sys, http.server
    print("starting", flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])),
                                    http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def service(name: str, program: str, **options) -> Service:
    command = [sys.executable, "-c", textwrap.dedent(program), "{port}"]
    return Service(name, command, **options)


def logs_in(folder: Path):
    return lambda name: folder / f"{name}.log"


@pytest.mark.parametrize("ready", [{}, {"ready_http": "/"}, {"ready_line": "starting"}])
def test_a_service_is_there_while_it_is_needed_and_gone_afterwards(tmp_path, ready):
    with running([service("web", SERVER, **ready)], logs_in(tmp_path), tmp_path) as addresses:
        deadline = time.monotonic() + 10
        while True:
            try:
                told = urllib.request.urlopen(f"http://{addresses['web']}/", timeout=5)
                break
            except OSError:  # with ready_line it may have said so a moment too early
                assert time.monotonic() < deadline
        assert told.status == 200
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{addresses['web']}/", timeout=5)


def test_a_service_that_never_becomes_ready_fails_with_its_last_lines(tmp_path):
    waiting = service("db", "print('no disk left', flush=True); import time; time.sleep(60)",
                      seconds=1)  # fmt: skip
    with (
        pytest.raises(ServiceFailed, match=r"(?s)db was not ready within 1 s.*no disk left"),
        running([waiting], logs_in(tmp_path), tmp_path),
    ):
        raise AssertionError("never here")
    assert not [each for each in psutil.Process().children() if "no disk" in str(each.cmdline())]


def test_a_service_that_dies_is_named_with_its_exit_code_and_last_lines(tmp_path):
    dying = service("db", "raise SystemExit('bad password')")
    with (
        pytest.raises(ServiceFailed, match=r"(?s)db ended with exit code 1.*bad password"),
        running([dying], logs_in(tmp_path), tmp_path),
    ):
        raise AssertionError("never here")


def test_services_start_in_order_and_stop_in_reverse(tmp_path):
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


def test_a_command_that_is_no_list_is_refused():
    with pytest.raises(InvalidInput, match="a list of words"):
        Service("web", "python server.py")


def test_an_address_is_there_once_the_service_is():
    environment = Sized()
    with pytest.raises(InvalidInput, match="no service 'web' that runs now"):
        environment.address("web")
    environment.learn_addresses({"web": "127.0.0.1:80"})
    assert environment.address("web") == "127.0.0.1:80"


def test_a_tool_that_a_workspace_has_not_is_refused():
    with pytest.raises(InvalidInput, match="did you mean run_python"):
        Workspace(tools=("run_pyton",))
