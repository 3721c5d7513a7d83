"""Two hosts on one machine: network namespaces that are joined by one cable. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Network:
    """Two namespaces joined by one cable."""

    def __init__(self) -> None:
        self.names = [f"sparring-{os.getpid()}-{number}" for number in range(2)]
        self.cables = [f"sp{os.getpid() % 10000}{side}" for side in "ab"]

    def __enter__(self) -> Network:
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", self.cables[0], "type", "veth", "peer", "name", self.cables[1])
        for number, (name, cable) in enumerate(zip(self.names, self.cables, strict=True)):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    @staticmethod
    def address(number: int) -> str:
        """The address of one of the hosts."""
        return f"10.77.0.{number + 1}"

    def inside(self, number: int) -> list[str]:
        """The beginning of a command that runs on one of the hosts."""
        return ["ip", "netns", "exec", self.names[number]]

    def start(self, number: int, *words: str) -> subprocess.Popen[bytes]:
        """Start a Python module on one of the hosts."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": self.cables[number],
        }
        command = [*self.inside(number), sys.executable, "-m", *words]
        return subprocess.Popen(command, env=environment, start_new_session=True)

    def cut(self) -> None:
        ip("-n", self.names[0], "link", "set", self.cables[0], "down")

    def mend(self) -> None:
        ip("-n", self.names[0], "link", "set", self.cables[0], "up")
