"""Player processes: the rollouts and the weights of a run do not depend on who plays."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparring.contracts.cases import Split
from sparring.jobs.player import OrderPlayer
from sparring.learning import rollout_collector
from sparring.learning.rollout_collector import OrderedPlay
from sparring.measures import MeasureSet
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import JoinRun, join_run
from sparring.player import Player
from sparring.policies.pretrained import load_tokenizer
from sparring.policies.server_policy import ServerPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.orders import Orders
from sparring.run_folder.rollout_log import RolloutLog
from sparring.runs.processes import marked
from sparring.runs.worker_group import mark_of
from tests.runs.test_helpers import ROOT, create
from tests.sampling_servers import COMMAND, InProcess
from tests.supervised import completed, history, start, wait_for
from tests.training import TALKATIVE, even, questions, talker, trainer, weights_digest

pytestmark = [pytest.mark.timeout(240)]
SETTINGS: dict[str, Any] = {
    "run": "run",
    "lora": True,
    "learning_rate": 5e-3,
    "max_completion_length": 8,
    "gradient_accumulation_steps": 1,
    "mask_truncated_completions": False,
    "validation_cases": 4,
}


@contextmanager
def playing(orders: Orders, name: str, tiny: Path, made: Any, address: str) -> Iterator[Any]:
    """A player in a thread; `stop` ends it in the middle of what it plays."""
    stop, settings, suite = threading.Event(), made.settings, questions()
    tokenizer = load_tokenizer(str(tiny))
    tokenizer.chat_template = TALKATIVE.template
    policy = ServerPolicy([address], tokenizer, TALKATIVE)
    limits, temperature = settings.limits(), settings.temperature
    finders = {each: suite.finder(each) for each in (Split.TRAINING, Split.VALIDATION)}
    player = OrderPlayer(
        orders,
        name,
        player=Player(talker(), policy, limits=limits, temperature=temperature),
        measures=MeasureSet.of((even,)),
        policy=policy,
        find_case=lambda split, case_id: finders[split](case_id),
        at_once=2,
    )
    thread = threading.Thread(target=lambda: asyncio.run(player.run(stop.is_set)))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def train(tiny: Path, runs: Path, address: str, players: int, *, loses_one: bool = False) -> Any:
    made = trainer(tiny, runs, sampling=[address], **SETTINGS)
    if not players:
        return made.train()
    orders = Orders(made.folder.orders)
    made._training.built.collector._ordered = OrderedPlay(orders, 0, 4)
    with ExitStack() as stack:
        stops = [
            stack.enter_context(playing(orders, f"player-{n}", tiny, made, address))
            for n in range(players)
        ]
        if loses_one:
            claimed = made.folder.orders / "claimed" / "player-0"

            def lose() -> None:
                wait_for(lambda: list(claimed.glob("*.json")))
                stops[0].set()

            threading.Thread(target=lose, daemon=True).start()
        return made.train()


@pytest.fixture(scope="module")
def server(tiny_folder):
    with InProcess(tiny_folder) as server:
        yield server.address


@pytest.fixture(scope="module")
def without(server, tiny_folder, tmp_path_factory):
    return train(tiny_folder, tmp_path_factory.mktemp("alone"), server, 0)


def logs_of(result: Any) -> list[Any]:
    folders = (result.folder.rollouts(), result.folder.validation_rollouts())
    return [list(RolloutLog(folder).records()) for folder in folders]


@pytest.mark.parametrize(
    ("players", "loses_one"),
    [
        pytest.param(1, False, marks=pytest.mark.nightly),
        pytest.param(2, False, marks=pytest.mark.nightly),
        (2, True),
    ],
)
def test_a_run_with_players_ends_with_the_weights_of_one_without(
    players, loses_one, without, server, tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(rollout_collector, "_LOST_SECONDS", 2.0)
    result = train(tiny_folder, tmp_path, server, players, loses_one=loses_one)
    assert logs_of(result) == logs_of(without)
    assert weights_digest(result) == weights_digest(without)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_player_process_that_is_killed_changes_nothing(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sampling = {"servers": 1, "command": COMMAND}
    alone = start(create(tmp_path, "alone", tiny_folder, sampling))
    completed(alone, 400)
    folder = start(create(tmp_path, "players", tiny_folder, sampling, players=2))
    wait_for(lambda: list_checkpoints(folder.checkpoints), 400)
    players = [each for each in marked(mark_of(folder)) if "sparring.jobs.player" in each.cmdline()]
    assert len(players) == 2
    players[0].kill()
    completed(folder, 400)
    assert weights_digest(folder) == weights_digest(alone)
    logs = [list(RolloutLog(each.rollouts()).records()) for each in (alone, folder)]
    assert logs[0] == logs[1]


def players_of(folder: RunFolder) -> list[psutil.Process]:
    """The player processes of a run, those of joined hosts included."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = process.cmdline()
            if "sparring.jobs.player" in line and str(folder.path.resolve()) in line:
                found.append(process)
    return found


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_players_that_are_killed_ten_times_change_nothing(
    server, tiny_folder, tmp_path, monkeypatch
):
    """One of the three has joined as from another host."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options: dict[str, Any] = {"sampling": {"servers": [server]}, "max_steps": 24}
    alone = completed(start(create(tmp_path, "alone", tiny_folder, **options)), 600)
    folder = start(create(tmp_path, "players", tiny_folder, players=2, **options))
    joined = join_run(
        JoinRun(run="players", role="player"), Caller(Role.OWNER, tmp_path, folder=tmp_path)
    )
    drawn, kills = random.Random(20), 0
    while kills < 10 and not history(folder).state.has_ended:
        if victims := players_of(folder):
            drawn.choice(victims).kill()
            kills += 1
        time.sleep(drawn.uniform(1.0, 8.0))
    completed(folder, 900)
    assert kills == 10
    assert weights_digest(folder) == weights_digest(alone)
    logs = [list(RolloutLog(each.rollouts()).records()) for each in (alone, folder)]
    assert logs[0] == logs[1]
    wait_for(lambda: not psutil.pid_exists(joined.pid) or is_zombie(joined.pid), 30)
    assert not players_of(folder)


def is_zombie(pid: int) -> bool:
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    return True
