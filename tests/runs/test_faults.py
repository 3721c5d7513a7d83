"""Faults by hand: each ends in a state that is documented, with the cause in `run show`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import SparringError
from sparring.contracts.specs import EvalSpec, PlaySettings, PolicySpec, Supervision
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import ResumeRun, resume_run, stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import read_lines
from sparring.runs.claims import claimant, newest_epoch
from sparring.runs.history import read_history
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import ProcessIdentity
from sparring.source_files import code_digest
from tests.supervised import completed, ended, history, ranks_of, start, wait_for
from tests.training import weights_digest

ROOT = Path(__file__).resolve().parents[2]
FAULTY = f"{ROOT}/tests/runs/faulty.py:Faulty"


def create(runs: Path, name: str, tiny: Path, **given: Any) -> RunFolder:
    folder = RunFolder(runs / name)
    settings = {
        "max_steps": 6,
        "save_steps": 1,
        "max_completion_length": 24,
        "learning_rate": 1e-3,
        "validation_cases": 0,
        "cases_per_batch": 1,
        **given.pop("settings", {}),
    }
    spec = TrainSpec(
        target=FAULTY,
        code_digest=code_digest(FAULTY),
        environment="faulty",
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(**settings),
        supervision=Supervision(**given.get("supervision", {})),
        sources=dict.fromkeys(given.pop("supervision", {}), "the test"),
        **given,
    )
    folder.create(spec.model_dump(mode="json"))
    return folder


def owner_of(folder: RunFolder, name: str = "owner") -> Caller:
    return Caller(Role.OWNER, folder.path.parent, name, folder=folder.path.parent)


def shown(folder: RunFolder) -> Any:
    return show_run(RunQuery(run=folder.id), owner_of(folder))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def undisturbed(tiny_folder, tmp_path_factory):
    return completed(start(create(tmp_path_factory.mktemp("whole"), "whole", tiny_folder)))


class TestFaults:
    pytestmark = pytest.mark.timeout(600)

    def test_a_hung_trainer_is_noticed_named_and_started_again(
        self, undisturbed, tiny_folder, tmp_path
    ):
        config = {"fault": "stopped", "once": str(tmp_path / "happened")}
        limits = {"hang_timeout": 6.0}
        folder = create(tmp_path, "hung", tiny_folder, config=config, supervision=limits)
        completed(start(folder))
        restart = next(event for event in read_lines(folder.events) if event["event"] == "restart")
        assert restart["cause"] == "hung"
        assert "hung at step" in restart["message"]
        assert "sends no heartbeat" in restart["message"]
        assert weights_digest(folder) == weights_digest(undisturbed)

    @pytest.mark.nightly
    def test_a_run_that_hangs_repeatedly_fails_with_the_place(self, tiny_folder, tmp_path):
        limits = {"hang_timeout": 4.0, "restarts": 1}
        config = {"fault": "sleeping"}
        settings = {"rollout_timeout": 500.0, "save_steps": 6}
        folder = create(
            tmp_path,
            "sleeps",
            tiny_folder,
            config=config,
            supervision=limits,
            settings=settings,
        )
        found = ended(start(folder))
        assert (found.state, found.cause, found.attempt.number) == (RunState.FAILED, "hung", 2)
        seen = shown(folder)
        assert "is alive but stalled" in seen.message
        assert "it is in " in seen.message
        assert "/tests/runs/faulty.py:" in seen.message  # the stack says who sleeps
        assert not ranks_of(folder)

    @pytest.mark.nightly
    def test_a_file_that_changes_between_two_attempts_is_refused(self, tiny_folder, tmp_path):
        mine = tmp_path / "mine.py"
        mine.write_text("from tests.jobs.train_file import Talk\n\n\nclass Mine(Talk):\n    pass\n")
        target = f"{mine}:Mine"
        folder = create(tmp_path, "edited", tiny_folder, settings={"max_steps": 60})
        spec = {**folder.read_spec(), "target": target, "code_digest": code_digest(target)}
        folder.spec.write_text(json.dumps(spec))
        start(folder)
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        mine.write_text(mine.read_text() + "# another agent\n")
        ranks_of(folder)[0].send_signal(signal.SIGKILL)
        found = ended(folder)
        assert (found.state, found.cause) == (RunState.FAILED, "refused")
        assert "has changed since run edited was created" in found.message

    def test_a_process_that_ends_without_a_report_is_described_by_its_exit_code(
        self, tiny_folder, tmp_path
    ):
        given = {"config": {"fault": "exit"}, "supervision": {"restarts": 0}}
        found = ended(start(folder := create(tmp_path, "exits", tiny_folder, **given)))
        assert (found.state, found.cause) == (RunState.FAILED, "exception")
        assert "ended with exit code 7 at step" in shown(folder).message

    @pytest.mark.nightly
    def test_a_tool_that_never_comes_back_is_left_at_its_deadline_and_named(
        self, warm_folder, tmp_path
    ):
        folder = RunFolder(tmp_path / "runs" / "deaf")
        spec = EvalSpec(
            target=f"{ROOT}/tests/runs/faulty.py:DeafDoor",
            policy=PolicySpec(model=str(warm_folder)),
            cases=8,
            play=PlaySettings(tool_timeout=0.5, max_turns=2, max_completion_length=128),
        )
        folder.create(spec.model_dump(mode="json"))
        assert ended(start(folder)).state is RunState.COMPLETED
        assert "× ring" in shown(folder).warning
        assert "abandoned at its deadline" in shown(folder).warning

    @pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
    @pytest.mark.nightly
    def test_a_disk_that_is_full_at_a_checkpoint_is_named(self, tiny_folder, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=7m", "none", disk], check=True)
        try:
            folder = create(disk, "full", tiny_folder, settings={"save_total_limit": 50})
            found = ended(start(folder))
            assert (found.state, found.cause) == (RunState.FAILED, "disk_full")
            assert "the disk is full" in shown(folder).message
            assert not list(folder.checkpoints.glob(".step-*.partial"))
            spoilt = [each.path for each in list_checkpoints(folder.checkpoints)]
            assert spoilt  # what was whole stays, and is gone on from when there is room
            subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
            resume_run(ResumeRun(run="full"), owner_of(folder))
            completed(folder)
        finally:
            subprocess.run(["umount", "-l", disk], check=False)

    @pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="takes a memory group of our own"
    )
    @pytest.mark.nightly
    def test_a_kill_for_memory_is_distinguished_from_other_kills(self, tiny_folder, tmp_path):
        group = Path("/sys/fs/cgroup/memory") / f"sparring-test-{os.getpid()}"
        group.mkdir()
        try:
            (group / "memory.limit_in_bytes").write_text(str(1500 << 20))
            config = {"fault": "memory"}
            limits = {"restarts": 0}
            folder = create(tmp_path, "eats", tiny_folder, config=config, supervision=limits)
            start(folder)
            (worker,) = wait_for(lambda: ranks_of(folder))
            (group / "cgroup.procs").write_text(str(worker.pid))
            found = ended(folder)
            assert (found.state, found.cause) == (RunState.FAILED, "out_of_memory")
            assert "ran out of memory" in shown(folder).message
        finally:
            time.sleep(0.5)
            group.rmdir()

    @pytest.mark.nightly  # it must still run while a command starts, which a quick machine may miss
    def test_a_clock_that_is_stepped_back_changes_nothing(self, undisturbed, tiny_folder, tmp_path):
        """Commands live in another hour than the run, before and after its supervisor is lost."""
        faketime = shutil.which("faketime")
        if faketime is None:
            pytest.skip("takes the package faketime")
        folder = start(create(tmp_path, "clock", tiny_folder))
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        environment = {**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        command = [faketime, "-f", "-1h", sys.executable, "-c"]
        code = "from sparring.surfaces.cli.main import run; run()"

        def earlier(*words: str) -> str:
            done = subprocess.run(
                [*command, code, "run", *words, "--runs", str(tmp_path), "--json"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout

        assert '"state":"running"' in earlier("show", "clock")
        assert history(folder).epoch == 1  # it was not taken for silent
        supervisor_of(folder).signal(signal.SIGKILL)
        wait_for(lambda: not supervisor_of(folder).is_alive, 10)
        earlier("list")
        completed(folder)
        assert history(folder).epoch == 2
        assert weights_digest(folder) == weights_digest(undisturbed)

    @pytest.mark.nightly
    def test_operators_that_stop_and_resume_at_once_leave_it_in_one_state(
        self, undisturbed, tiny_folder, tmp_path
    ):
        folder = start(create(tmp_path, "torn", tiny_folder, settings={"max_steps": 6}))
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        refused: list[str] = []

        def operate(name: str) -> None:
            caller = owner_of(folder, name)
            for _ in range(6):
                for act in (
                    lambda: stop_run(RunQuery(run=folder.id), caller),
                    lambda: resume_run(ResumeRun(run=folder.id), caller),
                ):
                    try:
                        act()
                    except SparringError as error:
                        refused.append(str(error))
                    time.sleep(0.7)

        operators = [threading.Thread(target=operate, args=(name,)) for name in ("ada", "ben")]
        for each in operators:
            each.start()
        for each in operators:
            each.join()
        assert all("still stopping" in message for message in refused), refused
        wait_for(lambda: history(folder).state.has_ended or not history(folder).is_stop_requested)
        if history(folder).state is RunState.STOPPED:
            resume_run(ResumeRun(run=folder.id), owner_of(folder))
        completed(folder)
        assert weights_digest(folder) == weights_digest(undisturbed)

    @pytest.mark.nightly
    def test_a_run_that_is_stopped_while_it_starts_never_trains(self, tiny_folder, tmp_path):
        folder = start(create(tmp_path, "early", tiny_folder))
        wait_for(lambda: history(folder).state is RunState.STARTING)
        stop_run(RunQuery(run="early"), owner_of(folder))
        found = ended(folder, 60)
        assert (found.state, found.message) == (RunState.STOPPED, "stopped by owner")
        assert not list_checkpoints(folder.checkpoints)
        assert not ranks_of(folder)

    @pytest.mark.nightly
    def test_a_run_that_does_not_stop_is_killed_after_its_stop_timeout(self, tiny_folder, tmp_path):
        config = {"fault": "sleeping"}
        limits = {"stop_timeout": 3.0, "hang_timeout": 500.0}
        settings = {"rollout_timeout": 500.0}
        given = {"config": config, "supervision": limits, "settings": settings}
        folder = start(create(tmp_path, "deaf", tiny_folder, **given))
        wait_for(lambda: len(list_checkpoints(folder.checkpoints)) >= 1)
        time.sleep(2)
        stop_run(RunQuery(run="deaf"), owner_of(folder))
        found = ended(folder, 60)
        assert found.state is RunState.STOPPED
        assert "did not stop within 3 s" in found.message
        assert not ranks_of(folder)

    @pytest.mark.nightly
    def test_hours_are_a_budget(self, tiny_folder, tmp_path):
        folder = create(
            tmp_path, "long", tiny_folder, settings={"max_steps": 5000}, hours=20 / 3600
        )
        found = ended(start(folder))
        assert found.state is RunState.STOPPED
        assert "the run has used up its budget of 0.00555556 hours" in found.message


def supervisor_of(folder: RunFolder) -> ProcessIdentity:
    holder = claimant(folder, newest_epoch(folder))
    assert holder is not None
    return holder


# ---------------------------------------------------------------------- quick


def test_a_run_of_an_unknown_kind_fails_once_with_the_reason(tmp_path):
    """A real supervisor, which starts no worker."""
    folder = RunFolder(tmp_path / "odd")
    folder.create({"format": 1, "kind": "odd", "target": "x.py:X"})
    found = ended(start(folder), 60)
    assert (found.state, found.cause, found.attempt.number) == (RunState.FAILED, "refused", 0)
    assert "kind is 'odd'" in found.message
    assert found.exit_code == 2
    assert read_history(folder).history.epoch == 1
