"""The command and the variables of a server that a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import SettingError
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.jobs import sampling_server
from sparring.jobs.sampling_server import (
    cpu_environment,
    gpus_of,
    main,
    server_command,
    server_environment,
)
from sparring.run_folder import RunFolder


def spec_of(sampling: Any = 1, processes: int = 1, **settings: Any) -> TrainSpec:
    return TrainSpec(
        target="x.py:X",
        policy=PolicySpec(model="tiny"),
        settings=TrainSettings(sampling=sampling, **settings),
        processes=processes,
    )


def test_a_server_reports_the_log_probabilities_that_training_needs() -> None:
    command = server_command(spec_of(), "/m", 8000)
    assert command[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--logprobs-mode") + 1] == "processed_logprobs"
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert "--enable-lora" not in command


def test_adapters_are_served_up_to_the_rank_of_the_run() -> None:
    command = server_command(spec_of(lora={"r": 32}), "/m", 8000)
    assert command[command.index("--max-lora-rank") + 1] == "32"


@pytest.mark.parametrize(("rank", "served"), [(4, "8"), (24, "32"), (300, "320"), (600, "600")])
def test_the_rank_is_rounded_up_to_one_that_vllm_accepts(rank: int, served: str) -> None:
    command = server_command(spec_of(lora={"r": rank}), "/m", 8000)
    assert command[command.index("--max-lora-rank") + 1] == served


def test_servers_stay_within_the_gpus_that_are_visible(tmp_path: Path) -> None:
    folder, environment = RunFolder(tmp_path / "run"), {"CUDA_VISIBLE_DEVICES": "4, GPU-8f,6"}
    variables = server_environment(folder, is_adapter=True, gpus=[1, 2], environment=environment)
    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-8f,6"
    with pytest.raises(SettingError, match=r"sampling\.gpus has 3, .* lists 3 GPUs"):
        server_environment(folder, is_adapter=True, gpus=[3], environment=environment)
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(SettingError, match="lists 0 GPUs"):
        server_environment(folder, is_adapter=True, gpus=[0], environment=hidden)


def test_further_arguments_come_last_so_that_they_prevail() -> None:
    sampling = {"servers": 1, "command": ["vllm"], "arguments": ["--max-model-len", "2048"]}
    command = server_command(spec_of(sampling), "/m", 8000)
    assert (command[0], command[-2:]) == ("vllm", ["--max-model-len", "2048"])


def test_servers_fetch_adapters_by_name_from_the_folder_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    variables = server_environment(folder, is_adapter=True, gpus=[2, 3], environment={})
    assert variables["VLLM_LORA_RESOLVER_CACHE_DIR"] == str(folder.policies)
    assert variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert variables["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_only_servers_of_whole_weights_offer_the_endpoints_without_a_key(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for is_adapter in (True, False):
        variables = server_environment(folder, is_adapter=is_adapter, key="secret")
        assert ("VLLM_SERVER_DEV_MODE" in variables) is not is_adapter
        assert variables["VLLM_API_KEY"] == "secret"


def test_servers_on_a_cpu_share_its_cores_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert cpu_environment(2, {})["OMP_NUM_THREADS"] == "4"
    assert cpu_environment(16, {})["OMP_NUM_THREADS"] == "1"
    assert cpu_environment(2, {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"


def test_a_server_that_joins_has_all_gpus_of_its_host() -> None:
    assert gpus_of(spec_of("joined", processes=4), 3, 2) == [0, 1]
    assert gpus_of(spec_of({"servers": "joined", "gpus": [1]}), 3, 2) == [1]


def test_servers_share_the_gpus_that_the_ranks_leave() -> None:
    spec = spec_of(2, processes=4)
    assert [gpus_of(spec, number, 8) for number in (0, 1)] == [[4, 5], [6, 7]]
    assert gpus_of(spec_of(2), 0, 0) == []


def test_servers_take_the_gpus_that_are_given() -> None:
    spec = spec_of({"servers": 2, "gpus": [1, 3]})
    assert [gpus_of(spec, number, 4) for number in (0, 1)] == [[1], [3]]


def test_more_servers_than_gpus_are_refused() -> None:
    with pytest.raises(SettingError, match="need a GPU each"):
        gpus_of(spec_of(3, processes=2), 0, 4)


def test_a_missing_vllm_is_refused_with_the_way_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(spec_of().model_dump(mode="json"))
    monkeypatch.setattr(sampling_server.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingError, match=r"sampling\.command"):
        main(str(folder.path), 0, 8000)
