"""A PostgreSQL of Debian's on loopback, for one test module: started, killed, wiped."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import psycopg

from tests.supervised import wait_for


def bin_folder() -> Path | None:
    """The newest installed version's programs; None without PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Postgres:
    """One cluster. As root, its processes run as the user `postgres`, who may not be root."""

    def __init__(
        self, folder: Path, programs: Path, host: str = "127.0.0.1", before: Sequence[str] = ()
    ) -> None:
        """`before` is the beginning of each command, for a host in a network of its own."""
        self._programs = programs
        self._host = host
        self._before = before
        self._data = folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        self._folder = folder
        if os.geteuid() == 0:
            for each in (folder, *folder.parents):
                if not each.stat().st_mode & 0o001:  # temporary folders that only root may enter
                    each.chmod(0o755)
            shutil.chown(folder, "postgres")
        self.create()

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@{self._host}:{self.port}/postgres"

    def create(self) -> None:
        """A cluster without tables."""
        shutil.rmtree(self._data, ignore_errors=True)
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run("initdb", "-D", str(self._data), *options)
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all all samenet trust\n")
        self.start()

    def start(self) -> None:
        options = f"-h {self._host} -p {self.port} -k '' -c max_connections=200"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def kill(self) -> None:
        """Without a chance to write anything, as a lost host would be."""
        pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(lambda: not any(map(_is_alive, family)))
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # a zombie would count as running

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def schemas(self) -> list[str]:
        """The schemas of indexes."""
        wanted = "select nspname from pg_namespace where nspname like 'sparring%'"
        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute(wanted)]

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._programs / program), *options]
        if os.geteuid() == 0:
            command = ["runuser", "-u", self._user, "--", *command]
        command = [*self._before, *command]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL)


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
