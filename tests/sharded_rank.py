"""One rank of a training run whose weights are replicated (ddp) or sharded (fsdp2), on CPUs.

`python -m tests.sharded_rank MODE MODEL RUNS ADDRESS SETTINGS`, under the variables of torchrun.
Accelerate shards only on accelerators; for FSDP2 on CPUs, its state says that it has some. This is
for tests only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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


def main(mode: str, model: str, runs: str, address: str, settings: str) -> None:
    if mode == "fsdp2":
        os.environ.update(SHARDED)
        pretend_accelerators()
    from torch.distributed.tensor import DTensor

    from tests.training import trainer

    made = trainer(
        Path(model), Path(runs), run="run", processes=2, sampling=[address], **json.loads(settings)
    )
    result = made.train()
    if os.environ["RANK"] == "0":
        kinds = {isinstance(each, DTensor) for each in made.model.parameters()}
        print(json.dumps({"is_sharded": True in kinds, "steps": result.summary["steps"]}))


if __name__ == "__main__":
    main(*sys.argv[1:6])
