"""`python -m sparring.jobs.sampling_server RUN_FOLDER NUMBER PORT`: starts a vLLM server of a run.

Builds the server's command from the run's spec and replaces this process with it (exec), so that
the run's supervisor monitors and restarts the server itself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.contracts.errors import SettingError, SparringError
from sparring.contracts.training import SamplingServers, TrainSpec
from sparring.policies.pretrained import locate
from sparring.run_folder import RunFolder
from sparring.run_folder.server_list import JoinedServers

_MODULE = "vllm.entrypoints.openai.api_server"
_LOOPBACK = "127.0.0.1"
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the values that vLLM accepts, but for 1
_LEAST_LORAS = 4  # adapters that a server can hold at the same time
# Chunked prefill crashes vLLM on a CPU if a request has a seed: "CPU Generator does not use
# offset".
CPU_ARGUMENTS = ("--enforce-eager", "--no-enable-chunked-prefill")


def server_command(
    spec: TrainSpec,
    model: str,
    port: int,
    *,
    host: str = _LOOPBACK,
    gpus: Sequence[int] = (),
    has_gpu: bool = False,
) -> list[str]:
    """Return the command of a server that serves `model` and can load the run's weights."""
    sampling, settings = _sampling_of(spec), spec.settings
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bfloat16" if has_gpu else "float32"
    command = list(sampling.command) or [sys.executable, "-m", _MODULE]
    command += ["--model", model, "--host", host, "--port", str(port)]
    command += ["--logprobs-mode", "processed_logprobs", "--dtype", dtype]
    if (adapter := settings.adapters) is not None:
        rank = int(adapter.get("r", 16))
        accepted = next((each for each in _LORA_RANKS if each >= rank), rank)
        command += ["--enable-lora", "--max-lora-rank", str(accepted)]
        in_play = settings.max_staleness + 1
        command += ["--max-loras", str(max(_LEAST_LORAS, in_play + 1))]
    if len(gpus) > 1:
        command += ["--tensor-parallel-size", str(len(gpus))]
    if not has_gpu:
        command += CPU_ARGUMENTS
    return [*command, *sampling.arguments]


def server_environment(
    folder: RunFolder,
    *,
    is_adapter: bool,
    gpus: Sequence[int] = (),
    key: str = "",
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the environment variables that let a server load weights while it runs, select its
    GPUs, and make it require `key`, if given, from clients. `gpus` are positions in the list
    `CUDA_VISIBLE_DEVICES` of `environment`, if that is set."""
    variables = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_LORA_RESOLVER_CACHE_DIR": str(folder.policies.resolve()),
        "VLLM_CPU_KVCACHE_SPACE": environment.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "DO_NOT_TRACK": "1",
    }
    if not is_adapter:
        variables["VLLM_SERVER_DEV_MODE"] = "1"  # enables the endpoints that reload all weights
    if key:
        variables["VLLM_API_KEY"] = key
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(_device_names(gpus, environment))
    return variables


def _device_names(gpus: Sequence[int], environment: Mapping[str, str]) -> list[str]:
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(gpu) for gpu in gpus]
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if max(gpus) >= len(names):
        raise SettingError(
            f"sampling.gpus has {max(gpus)}, but CUDA_VISIBLE_DEVICES lists {len(names)} GPUs, "
            "which are counted from 0"
        )
    return [names[gpu] for gpu in gpus]


def cpu_environment(servers: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that divide the machine's cores among servers without a
    GPU. Without them, every server would start threads for all cores. Values in `environment` take
    precedence."""
    threads = max(1, (os.cpu_count() or 1) // max(1, servers))
    shared = {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default, all servers use the same cores
    }
    return {name: environment.get(name, value) for name, value in shared.items()}


def gpus_of(spec: TrainSpec, number: int, visible: int) -> list[int]:
    """Return the GPU numbers of one server: its share of `sampling.gpus` or, by default, of the
    visible GPUs that the ranks do not use. A joined server gets all of `sampling.gpus` or, by
    default, all visible GPUs."""
    sampling = _sampling_of(spec)
    if sampling.servers == "joined":
        return list(sampling.gpus) or list(range(visible))
    given = list(sampling.gpus) or list(range(spec.processes, visible))
    if not given and not visible:
        return []
    share = len(given) // sampling.number_started
    if share < 1:
        found = "sampling.gpus lists" if sampling.gpus else "the training processes leave"
        raise SettingError(
            f"sampling: {sampling.number_started} servers need a GPU each, but {found} "
            f"{len(given)}; lower sampling.servers or `processes`, or list more in sampling.gpus"
        )
    return given[number * share : (number + 1) * share]


def _sampling_of(spec: TrainSpec) -> SamplingServers:
    if spec.settings.sampling is None:
        raise SettingError("the run's settings have no sampling servers; pass --sampling 1")
    return spec.settings.sampling


def _visible_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def main(
    path: str,
    number: int,
    port: int,
    host: str = _LOOPBACK,
    *,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Replace this process with the server."""
    folder = RunFolder(Path(path))
    spec = TrainSpec.model_validate(folder.read_spec())
    sampling = _sampling_of(spec)
    if not sampling.command and importlib.util.find_spec("vllm") is None:
        raise SettingError(
            "vLLM is not installed here: pip install vllm into a separate environment, and set "
            f"sampling.command = ['/path/to/python', '-m', '{_MODULE}']"
        )
    if spec.policy.model is None:
        raise SettingError("the run must name its model for sampling servers: pass --model NAME")
    visible = 0 if spec.settings.device == "cpu" else _visible_gpus()
    gpus = gpus_of(spec, number, visible)
    command = server_command(
        spec,
        locate(spec.policy.model),
        port,
        host=host,
        gpus=gpus,
        has_gpu=bool(gpus or visible),
    )
    folder.policies.mkdir(parents=True, exist_ok=True)
    print(" ".join(command), flush=True)
    is_joined = sampling.servers == "joined"
    key = JoinedServers(folder).key() if is_joined else ""
    is_adapter = spec.settings.adapters is not None
    added = server_environment(
        folder, is_adapter=is_adapter, gpus=gpus, key=key, environment=environment
    )
    if not (gpus or visible):
        added |= cpu_environment(1 if is_joined else sampling.number_started, environment)
    variables = {**environment, **added}
    os.execvpe(command[0], command, variables)  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    except (SparringError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
