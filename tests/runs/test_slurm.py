"""Runs as jobs of a real Slurm with two nodes, whose parts are killed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil
import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import EvalSpec, PolicySpec, Service, Supervision
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs, show_run
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import write_json
from sparring.run_folder.server_list import JoinedServers
from sparring.runs import slurm, supervisor
from sparring.runs.claims import claim
from sparring.runs.launchers import SupervisorPresence, handle_of
from sparring.runs.lifecycle import RunState
from sparring.runs.slurm import Slurm, _as_options, _components, _given, _script, _states_of
from tests.runs.test_helpers import create as helped
from tests.sampling_servers import COMMAND
from tests.slurm_cluster import Cluster, is_installed
from tests.supervised import completed, ended, history, ranks_of, start, wait_for
from tests.training import weights_digest

ROOT = Path(__file__).resolve().parents[2]
TALK = ROOT / "tests" / "jobs" / "train_file.py"
needs_slurm = pytest.mark.skipif(not is_installed(), reason="needs root, slurm-wlm and munge")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    place = tmp_path_factory.mktemp("slurm") / "cluster"
    with Cluster(place) as started, pytest.MonkeyPatch.context() as patch:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield started


def create(runs: Path, name: str, tiny: Path, steps: int = 30, **spec: object) -> RunFolder:
    folder = RunFolder(runs / name)
    made = TrainSpec(
        target=f"{TALK}:Talk",
        environment="talk",
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(
            max_steps=steps,
            save_steps=3,
            max_completion_length=24,
            learning_rate=1e-3,
            validation_cases=0,
            cases_per_batch=1,
        ),
        supervision=Supervision(launcher="slurm"),
        **spec,
    )
    folder.create(made.model_dump(mode="json"))
    return folder


def job_of(folder: RunFolder) -> str:
    return str(handle_of(folder)["job"])


@pytest.fixture(scope="module")
def undisturbed(cluster, tiny_folder, tmp_path_factory):
    folder = create(tmp_path_factory.mktemp("whole"), "whole", tiny_folder)
    return completed(start(folder))


class TestOnACluster:
    pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600), needs_slurm]  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _empty_cluster(self, cluster):
        cluster.empty()

    def test_a_killed_trainer_is_requeued_and_ends_alike(
        self, cluster, undisturbed, tiny_folder, tmp_path
    ):
        folder = start(create(tmp_path, "killed", tiny_folder))
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        ranks_of(folder)[0].send_signal(signal.SIGKILL)
        completed(folder)
        assert cluster.restarts_of(job_of(folder)) == 1
        assert history(folder).attempt.number == 2
        assert weights_digest(folder) == weights_digest(undisturbed)

    def test_a_run_continues_and_is_listed_without_the_slurm_controller(
        self, cluster, tiny_folder, tmp_path
    ):
        folder = start(create(tmp_path, "alone", tiny_folder, steps=150))
        owner = Caller(Role.OWNER, tmp_path, folder=tmp_path)
        wait_for(lambda: history(folder).state is RunState.RUNNING)
        cluster.kill("slurmctld")
        try:
            (line,) = list_runs(ListRuns(), owner).runs
            assert (line.run, line.environment) == ("alone", "talk")
            assert not line.state.has_ended
            completed(folder)
            assert history(folder).epoch == 1  # nobody has taken it for lost
        finally:
            cluster.start_controller()

    def test_a_stopped_run_is_cancelled_and_leaves_no_process(self, cluster, tiny_folder, tmp_path):
        folder = start(create(tmp_path, "stopped", tiny_folder, steps=500))
        owner = Caller(Role.OWNER, tmp_path, folder=tmp_path)
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        stop_run(RunQuery(run="stopped"), owner)
        assert ended(folder).state is RunState.STOPPED
        wait_for(lambda: cluster.state_of(job_of(folder)) == "CANCELLED", 30)
        assert not ranks_of(folder)
        assert show_run(RunQuery(run="stopped"), owner).message == "stopped by owner"

    def test_a_run_that_waits_for_nodes_is_cancelled_before_it_begins(
        self, cluster, tiny_folder, tmp_path
    ):
        spec = Supervision(launcher="slurm", slurm={"begin": "now+1hour"})
        folder = create(tmp_path, "waiting", tiny_folder)
        content = folder.read_spec()
        folder.spec.write_text(
            TrainSpec.model_validate({**content, "supervision": spec}).model_dump_json()
        )
        start(folder)
        owner = Caller(Role.OWNER, tmp_path, folder=tmp_path)
        assert show_run(RunQuery(run="waiting"), owner).state is RunState.QUEUED
        assert stop_run(RunQuery(run="waiting"), owner).state is RunState.STOPPED
        wait_for(lambda: cluster.state_of(job_of(folder)) == "CANCELLED", 30)

    def test_a_run_whose_node_fails_is_requeued_on_another(
        self, cluster, undisturbed, tiny_folder, tmp_path
    ):
        folder = start(create(tmp_path, "moved", tiny_folder))
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        node = ranks_of(folder)[0].environ()["SLURMD_NODENAME"]
        _lose_a_node(cluster, folder, node)
        try:
            completed(folder)
        finally:
            cluster.start_node(node)
        assert cluster.restarts_of(job_of(folder)) == 1
        assert weights_digest(folder) == weights_digest(undisturbed)

    def test_two_nodes_train_together_and_a_lost_one_is_requeued(
        self, cluster, tiny_folder, tmp_path
    ):
        whole = completed(start(create(tmp_path, "both", tiny_folder, nodes=2)))
        folder = start(create(tmp_path, "lost", tiny_folder, nodes=2))
        wait_for(lambda: list_checkpoints(folder.checkpoints))
        _lose_a_node(cluster, folder, "n1")
        try:
            wait_for(lambda: cluster.restarts_of(job_of(folder)) >= 1, 60)
        finally:
            cluster.start_node("n1")
        completed(folder)
        assert weights_digest(folder) == weights_digest(whole)

    def test_servers_on_nodes_of_their_own_are_requeued_with_the_job(
        self, cluster, tiny_folder, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("SPARRING_HOST", "127.0.0.1")
        own = {"servers": 1, "command": COMMAND}
        whole = helped(tmp_path / "alone", "whole", tiny_folder, own, max_steps=8)
        completed(start(whole), 300)
        joined = {"servers": "joined", "command": COMMAND}
        spec = helped(tmp_path, "apart", tiny_folder, joined, max_steps=8)
        on_slurm(spec, servers={"ntasks-per-node": 2})
        folder = start(spec)
        wait_for(lambda: list_checkpoints(folder.checkpoints), 300)
        assert cluster.components_of(job_of(folder)) == 2
        assert len(JoinedServers(folder).addresses()) == 2
        ranks_of(folder)[0].send_signal(signal.SIGKILL)
        completed(folder, 400)
        assert history(folder).attempt.number == 2
        assert weights_digest(folder) == weights_digest(whole)


def on_slurm(folder: RunFolder, **tables: dict[str, object]) -> None:
    """Have Slurm run it, with these components."""
    supervision = Supervision(launcher="slurm", slurm=tables)
    spec = TrainSpec.model_validate({**folder.read_spec(), "supervision": supervision})
    folder.spec.write_text(spec.model_dump_json())


def _lose_a_node(cluster: Cluster, folder: RunFolder, node: str) -> None:
    """All of it at once, so that nobody is left there to tell: its daemon, the daemons of its
    jobs, and then what those have started."""
    cluster.kill(f"slurmd.{node}")
    started, daemons = [], []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            words = " ".join([*process.cmdline(), *environment.values()])
            if environment.get("SLURMD_NODENAME") == node and str(folder.path) in words:
                started.append(process)
                above = process.parents()
                daemons += [each for each in above if "slurmstepd" in " ".join(each.cmdline())]
        except psutil.Error:
            continue
    for process in [*daemons, *started]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


# ---------------------------------------------------------------------- without a cluster


def test_options_are_words_of_their_own_and_none_of_ours():
    given = {"partition": "gpu; rm -rf /", "exclusive": True, "comment": None}
    assert _as_options(given) == ["--partition=gpu; rm -rf /", "--exclusive"]
    for name in ("output", "outpu", "wrap", "array", "clusters", "-x", "a b", "a=b"):
        with pytest.raises(InvalidInput, match="Sparring sets it"):
            _given(slurm_spec({name: "x"}))


def slurm_spec(slurm, kind=TrainSpec, **fields):
    return kind(target="x.py:X", supervision=Supervision(slurm=slurm), **fields)


def test_components_are_for_runs_that_use_them():
    def components(slurm, **settings):
        return _components(slurm_spec(slurm, settings=TrainSettings(**settings)))

    joined = {"servers": "joined"}
    given = {"servers": {"nodes": 2, "gres": "gpu:8"}, "players": {"partition": "cpu"}}
    assert components(given, sampling=joined, players=1) == {
        "server": {"nodes": 2, "gres": "gpu:8"},
        "player": {"partition": "cpu"},
    }
    assert _given(slurm_spec({**given, "partition": "gpu"})) == {"partition": "gpu"}
    for kind in (EvalSpec, CheckSpec):  # these inherit the table, and start one process
        assert _components(slurm_spec(given, kind)) == {}
    needy = TrainSettings(sampling=joined, players=1)
    services = (Service(name="db", command=["db"]),)
    with pytest.raises(InvalidInput, match="without services"):
        _components(slurm_spec(given, settings=needy, services=services))
    for wrong, settings, reason in (
        ({"servers": {}}, {"sampling": {"servers": 2}}, "--sampling joined"),
        ({"players": {}}, {"sampling": joined}, "players=1"),
        ({"servers": 2}, {"sampling": joined}, "is a table"),
        ({"servers": {"wrap": "x"}}, {"sampling": joined}, "Sparring sets it"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            components(wrong, **settings)


def test_components_are_steps_that_end_with_the_supervisor(tmp_path):
    lines = _script(RunFolder(tmp_path / "a run"), 2, 3, ("server", "player")).splitlines()
    assert [line.endswith(" &") for line in lines[2:]] == [True, True, True, False]
    assert "--het-group=1" in lines[3]
    assert lines[3].endswith("3 server &")
    assert "--het-group=2" in lines[4]
    assert lines[5].startswith("exec ")


def test_states_are_read_as_old_and_new_slurms_write_them():
    assert _states_of("RUNNING") == _states_of(["RUNNING"]) == {"RUNNING"}


def test_a_run_has_the_supervisor_that_claimed_it_whichever_job_was_submitted_last(
    tmp_path, monkeypatch
):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    monkeypatch.setattr(Slurm, "_states", lambda _: {"7": frozenset({"RUNNING"})})
    handle = {"epoch": 1, "job": "8"}  # ended: it came too late for the claim
    assert Slurm().look(folder, handle, 0) is SupervisorPresence.NO
    assert claim(folder, 1, "7")
    assert Slurm().look(folder, handle, 0) is SupervisorPresence.YES
    assert Slurm().look(folder, handle, 1) is SupervisorPresence.NO


@pytest.mark.parametrize(("job", "epochs"), [("7", [2]), ("8", [])])
def test_a_requeued_job_supervises_only_its_own_run(tmp_path, monkeypatch, job, epochs):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    write_json(folder.launch, {"epoch": 1, "job": "8"})  # submitted last
    assert claim(folder, 1, "7")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    supervised: list[int] = []
    monkeypatch.setattr(supervisor, "supervise", lambda _, epoch, **__: supervised.append(epoch))
    slurm.main(str(folder.path), "1")
    assert supervised == epochs


def test_a_job_that_waits_is_cancelled_but_the_run_of_another_is_not_stopped(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "train"})
    states = {"7": frozenset({"RUNNING"}), "8": frozenset({"PENDING"})}
    monkeypatch.setattr(Slurm, "_states", lambda _: states)
    cancelled: list[str] = []
    monkeypatch.setattr(slurm, "cancel", cancelled.append)
    assert Slurm().stop(folder, {"job": "8"})
    assert claim(folder, 1, "7")
    assert not Slurm().stop(folder, {"job": "8"})
    assert not Slurm().stop(folder, {"job": "7"})
    assert cancelled == ["8", "8"]
