"""Counts the files that a setting passes through: from request to run, and from spec to training.

    python benchmarks/structure.py

Follows one value, a learning rate that occurs nowhere else, through the arguments of every call: a
file counts if one of its functions receives the value, alone or inside another object. Bars: at
most 8 files from the request to the spec on disk, at most 20 from there to the first step.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sparring"
RATE = 0.000123457
REQUEST_BAR, TRAINING_BAR = 8, 20
DEEPEST = 6
FIRST_STEP = ("engine/grpo.py", "play")  # after it, only metrics contain the value


def contains_rate(value: Any, depth: int = 0) -> bool:
    if isinstance(value, float):
        return value == RATE
    if depth > DEEPEST or isinstance(value, str | bytes | int | type(None)):
        return False
    if isinstance(value, dict):
        return any(contains_rate(each, depth + 1) for each in list(value.values())[:100])
    if isinstance(value, list | tuple):
        return any(contains_rate(each, depth + 1) for each in list(value)[:100])
    fields = getattr(value, "__dict__", None) or {
        name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())
    }
    module = type(value).__module__
    return module.startswith("sparring") and contains_rate(dict(fields), depth + 1)


def files_receiving_rate(work: Callable[[], Any]) -> list[str]:
    found: dict[str, None] = {}

    def on_event(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)):
            return
        name = str(Path(code.co_filename).relative_to(SOURCE))
        if (name, code.co_name) == FIRST_STEP:
            sys.setprofile(None)
            return
        if name in found:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(contains_rate(frame.f_locals.get(each)) for each in names):
            found[name] = None

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


def request_to_run(place: Path) -> list[str]:
    from sparring.operations.operation import Caller, Role
    from sparring.operations.training import StartTrain, start_train
    from sparring.projects.templates import write_environment
    from sparring.runs import launchers

    write_environment(place, "my_agent")

    class NullLauncher:
        def start(self, *_: Any) -> dict[str, Any]:
            return {}

    launchers.launcher_named = lambda _name: NullLauncher()  # type: ignore[assignment]
    caller = Caller(Role.OWNER, place / "runs", "owner", folder=place)
    request = StartTrain(
        environment="my_agent", settings={"learning_rate": RATE, "model": "tiny"}, prove=False
    )
    return files_receiving_rate(lambda: start_train(request, caller))


def spec_to_training(place: Path) -> list[str]:
    from sparring.jobs.heartbeat import Heartbeat
    from sparring.jobs.run_job import Attempt, run_job
    from sparring.run_folder import RunFolder
    from sparring.run_folder.files import write_json

    (path,) = [each for each in (place / "runs").iterdir() if (each / "spec.json").is_file()]
    folder = RunFolder(path)
    spec = folder.read_spec()
    spec["settings"] |= {"max_steps": 1, "validation_cases": 0, "max_completion_length": 16}
    write_json(folder.spec, spec)
    attempt = Attempt(folder, Heartbeat(folder, 0, None), owns_process=True)
    return files_receiving_rate(lambda: run_job(attempt))


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        request, training = request_to_run(place), spec_to_training(place)
    shown = {
        "benchmark": "structure",
        "request_to_run": request,
        "spec_to_training": training,
        "files": {"request_to_run": len(request), "spec_to_training": len(training)},
        "bars": {"request_to_run": REQUEST_BAR, "spec_to_training": TRAINING_BAR},
    }
    shown["ok"] = len(request) <= REQUEST_BAR and len(training) <= TRAINING_BAR
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
