"""The control plane stays light."""

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "transformers", "trl", "agents", "datasets", "accelerate")


@pytest.mark.parametrize(
    "module",
    [
        "sparring",
        "sparring.operations.evaluating",
        "sparring.operations.rollouts",
        "sparring.operations.models",
        "sparring.surfaces.cli.main",
        "sparring.surfaces.cli.evaluating",
    ],
)
def test_the_control_plane_imports_nothing_heavy(module):
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    import sparring

    for name in sparring.__all__:
        assert getattr(sparring, name) is not None
    with pytest.raises(AttributeError, match="nobody"):
        _ = sparring.nobody


@pytest.mark.slow
def test_help_answers_at_once():
    """0.4 s on a quiet machine; beside a bare interpreter that imports typer, so that a busy
    machine slows both."""

    def best(code: str) -> float:
        times = []
        for _ in range(7):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    bare = best("import typer, typer.main, rich.console, rich.table, rich.panel, rich.markdown")
    ours = best("from sparring.surfaces.cli.main import run; run()")
    print({"bare": round(bare, 3), "help": round(ours, 3)})
    assert ours < max(0.4, 1.5 * bare)
