"""`python forwarder.py SOCKET PORT COMMAND…`: runs a command, and forwards a port to a Unix socket.

It usually runs in a sandbox without a network. HTTP clients connect to a loopback port, and the
forwarder passes their connections to the gateway's socket. It adds variables to the command's
environment that it reads from standard input, as a JSON object, because other users can read a
command line. It imports only the standard library, because Sparring is not installed in the
sandbox. With port 0 it forwards nothing, for a command that runs without a sandbox and reaches the
gateway itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes from source to target until either closes, then shut down both."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def serve(listening: socket.socket, path: str) -> None:
    """Accept connections forever, and forward each to the Unix socket."""
    while True:
        try:
            client, _ = listening.accept()
        except OSError:  # no descriptor is free; other connections will close
            time.sleep(0.05)
            continue
        try:
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(path)
        except OSError:
            client.close()
            continue
        for pair in ((client, upstream), (upstream, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main(arguments: list[str]) -> int:
    """Open the port, run the command, and return its exit code."""
    path, port, *command = arguments
    if int(port):
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(port)))
        listening.listen(256)
        threading.Thread(target=serve, args=(listening, path), daemon=True).start()
    variables = json.load(sys.stdin)
    return subprocess.call(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)
