"""What `structure.py` counts by execution: `python benchmarks/structure_paths.py WHAT`.

`declared` counts commands and settings. `quickstart` profiles a training like that of the README,
with the tiny model. `setting` follows one value, a learning rate that occurs nowhere else, through
the arguments of every call: a file counts if one of its functions receives the value, alone or
inside another object. The last line is a JSON object.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType
from typing import Any

import sparring

SOURCE = Path(sparring.__file__).parent
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RATE = 0.000123457
DEEPEST = 6
FIRST_STEP = ("learning/step.py", "take")  # after it, only metrics contain the value
IN_A_FUNCTION = 0x1  # CO_OPTIMIZED, which bodies of modules and classes lack
DRAW = "searchsorted"  # torch's function that draws tokens, in policies/generation.py


def file_of(code: CodeType) -> str | None:
    """The file of a function of ours, in `src`; None for others."""
    if not code.co_filename.startswith(str(SOURCE)) or not code.co_flags & IN_A_FUNCTION:
        return None
    return str(Path(code.co_filename).relative_to(SOURCE))


# ------------------------------------------------------------------ commands and settings


def declared() -> dict[str, Any]:
    import typer

    from sparring.contracts.specs import Supervision
    from sparring.contracts.training import TrainSettings
    from sparring.surfaces.cli.main import app

    def leaves(command: Any) -> int:
        inner = getattr(command, "commands", None)
        return sum(map(leaves, inner.values())) if inner is not None else 1

    return {
        "commands": leaves(typer.main.get_command(app)),
        "settings": len(TrainSettings.model_fields) + len(Supervision.model_fields),
    }


# ------------------------------------------------------------------ the quickstart


class Profile:
    """Notes every file of which a function is entered, in all threads, and where the first token is
    drawn."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.frames: list[str] = []
        self.has_trained = False

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if (file := file_of(frame.f_code)) is not None:
                self.files.add(file)
            return
        is_draw = event == "c_call" and getattr(argument, "__name__", "") == DRAW
        if is_draw and self.has_trained and not self.frames and file_of(frame.f_code) is not None:
            self.frames = frames_at(frame)


def frames_at(frame: FrameType) -> list[str]:
    """The functions of ours between `train()` and this frame, each once.

    These are the stack of the main thread, which waits in `train()`; the stack of the thread that
    draws; and everything that waits in an event loop between them: the coroutines and asynchronous
    generators that have begun and not ended. Rollouts that are played at the same time run the
    same functions, so they count once. Suspended context managers are no callers, and other
    threads, such as that of the heartbeat, are not on the way.
    """
    stacks = sys._current_frames()
    codes = [*stack_of(stacks[threading.main_thread().ident or 0])]
    for thing in gc.get_objects():
        if isinstance(thing, CoroutineType) and (thing.cr_running or thing.cr_await is not None):
            codes.append(thing.cr_code)
        if isinstance(thing, AsyncGeneratorType) and (
            thing.ag_running or thing.ag_await is not None
        ):
            codes.append(thing.ag_code)
    codes += stack_of(frame)
    named = {code: f"{file}:{code.co_qualname}" for code in codes if (file := file_of(code))}
    return list(named.values())


def stack_of(frame: FrameType | None) -> list[CodeType]:
    """The functions of a thread, the outermost first."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes[::-1]


def quickstart() -> dict[str, Any]:
    """Profile the README's first example, with the tiny model and fewer steps."""
    sys.path.insert(0, str(EXAMPLES))
    import quickstart

    settings = {"max_steps": 2, "num_generations": 4, "gradient_accumulation_steps": 1}
    settings |= {"lora": True, "learning_rate": 5e-4, "max_completion_length": 80, "max_turns": 3}
    profile = Profile()
    trainer_class = sparring.Trainer  # imports the libraries
    with tempfile.TemporaryDirectory() as runs:
        threading.setprofile(profile.note)
        sys.setprofile(profile.note)
        try:
            trainer = trainer_class(
                quickstart.agent, quickstart.suite, [quickstart.right_sum], model="tiny", runs=runs,
                validation_cases=8, examples=quickstart.examples, show_progress=False, **settings,
            )  # fmt: skip
            trainer.engine.add_callback(_first_step(profile))
            result = trainer.train()
            str(result)
            result.generate("What is 57 + 26?", max_new_tokens=16)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return {"quickstart_files": sorted(profile.files), "frames_to_draw": profile.frames}


def _first_step(profile: Profile) -> Any:
    """A callback of TRL's that says when the training begins, after the first validation."""
    from transformers import TrainerCallback

    class FirstStep(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            profile.has_trained = True

    return FirstStep()


# ------------------------------------------------------------------ a setting


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
    from sparring.jobs.run_job import Attempt, run_job
    from sparring.jobs.worker import Heartbeat
    from sparring.run_folder import RunFolder

    (path,) = [each for each in (place / "runs").iterdir() if (each / "spec.json").is_file()]
    folder = RunFolder(path)
    spec = json.loads(folder.spec.read_text())
    spec["settings"] |= {"max_steps": 1, "validation_cases": 0, "max_completion_length": 16}
    folder.spec.write_text(json.dumps(spec))
    attempt = Attempt(folder, Heartbeat(folder, 0, None))
    return files_receiving_rate(lambda: run_job(attempt))


def setting() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        return {
            "request_to_run": request_to_run(place),
            "spec_to_training": spec_to_training(place),
        }


def main() -> int:
    what = {"declared": declared, "quickstart": quickstart, "setting": setting}
    print(json.dumps(what[sys.argv[1]]()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
