"""The forwarder inside a sandbox: a port that leads to a Unix socket, and a command beside it."""

import io
import json
import socket
import sys
import threading

import pytest

from sparring.gateway import forwarder


@pytest.fixture
def echo(tmp_path):
    """A Unix socket that repeats what it reads."""
    path = str(tmp_path / "echo.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(8)

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data.upper())

    threading.Thread(target=serve, daemon=True).start()
    yield path
    listening.close()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_connection_to_the_port_reaches_the_socket(echo):
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=forwarder.serve, args=(listening, echo), daemon=True).start()
    for text in (b"hello", b"a" * 300_000):
        with socket.create_connection(listening.getsockname(), timeout=10) as connection:
            connection.sendall(text)
            found = b""
            while len(found) < len(text):
                found += connection.recv(65536)
            connection.shutdown(socket.SHUT_WR)
            assert found == text.upper()
            assert connection.recv(1) == b""  # the end is passed on


def test_a_connection_is_closed_if_there_is_no_socket(tmp_path):
    listening = socket.create_server(("127.0.0.1", 0))
    missing = str(tmp_path / "missing.sock")
    threading.Thread(target=forwarder.serve, args=(listening, missing), daemon=True).start()
    with socket.create_connection(listening.getsockname(), timeout=10) as connection:
        assert connection.recv(1) == b""


def test_the_command_runs_with_the_variables_and_its_code_is_returned(echo, tmp_path, monkeypatch):
    port, note = free_port(), tmp_path / "note"
    code = (
        "import os, socket, sys\n"
        f"with socket.create_connection(('127.0.0.1', {port}), timeout=10) as connection:\n"
        "    connection.sendall(os.environ['SPARRING_MODEL'].encode())\n"
        f"    open({str(note)!r}, 'wb').write(connection.recv(100))\n"
        "sys.exit(3 if sys.stdin.read() == '' else 4)\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"SPARRING_MODEL": "tiny"})))
    assert forwarder.main([echo, str(port), sys.executable, "-c", code]) == 3
    assert note.read_bytes() == b"TINY"
