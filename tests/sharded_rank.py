"""One rank of a training run on CPUs, with replicated (ddp) or sharded weights (fsdp2, zero2,
zero3).

`python -m tests.sharded_rank MODE MODEL RUNS ADDRESS SETTINGS`, under the variables of torchrun.
Accelerate shards only on accelerators; for FSDP2 on CPUs, its state says that it has some, and
DeepSpeed is given the backend of CPUs before Accelerate looks for one. This is for tests only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


def pretend_accelerators() -> None:
    import accelerate.state
    from accelerate.utils import DistributedType

    begin = accelerate.state.PartialState.__init__

    def begin_with_devices(self, *given, **options):  # type: ignore[no-untyped-def]
        begin(self, *given, **options)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    accelerate.state.PartialState.__init__ = begin_with_devices


def deepspeed_on_cpu(stage: int) -> dict[str, Any]:
    """Begin DeepSpeed with gloo; return the settings that choose it."""
    os.environ |= {
        "DS_ACCELERATOR": "cpu",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_TORCH_DEVICE": "cpu",
    }
    import deepspeed  # type: ignore[import-not-found]

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    config = {
        "zero_optimization": {"stage": stage},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    return {"engine": {"deepspeed": config, "ddp_backend": "gloo"}}


def main(mode: str, model: str, runs: str, address: str, settings: str) -> None:
    if mode == "fsdp2":
        os.environ.update(SHARDED)
        pretend_accelerators()
    given = json.loads(settings)
    if mode.startswith("zero"):
        given |= deepspeed_on_cpu(stage=int(mode[-1]))
    from torch.distributed.tensor import DTensor

    from tests.training import trainer

    made = trainer(Path(model), Path(runs), run="run", processes=2, sampling=[address], **given)
    result = made.train()
    if os.environ["RANK"] == "0":
        kinds = {
            isinstance(each, DTensor) or hasattr(each, "ds_id") for each in made.model.parameters()
        }
        shown = {
            "is_sharded": True in kinds,
            "by": made.engine.accelerator.distributed_type.value,
            "steps": result.summary.steps,
        }
        print(json.dumps(shown))


if __name__ == "__main__":
    main(*sys.argv[1:6])
