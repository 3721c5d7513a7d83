"""The spec of a shipment: which checkpoint becomes which files, and how they are verified."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from sparring.contracts.specs import PlaySettings, PolicySpec, RunSpec

QUANTIZATIONS = (
    "f32", "f16", "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "q3_k_m", "q2_k",
)  # fmt: skip


class Form(StrEnum):
    """A form in which a trained model is handed over."""

    ADAPTER = "adapter"
    MERGED = "merged"
    GGUF = "gguf"
    OLLAMA = "ollama"


class ShipSpec(RunSpec):
    """A shipment. `policy` is the model that the training started from."""

    kind: Literal["ship"] = "ship"
    run: str = Field(description="the training whose weights are shipped")
    checkpoint: str = Field(default="", description="which checkpoint; empty: the proved one")
    proof: str = Field(default="", description="the proof of the checkpoint; empty if unproven")
    base: PolicySpec = PolicySpec()
    to: str = Field(description="the folder that is written; it must not exist")
    trial: bool = Field(
        default=False, description="hand nothing over: the files are played, then removed"
    )
    forms: tuple[Form, ...] = Field(default=(), description="empty: all that need no more packages")
    quantizations: tuple[str, ...] = Field(default=("q8_0",), description="of the GGUF files")
    compare: bool = Field(
        default=False, description="choose the smallest GGUF file that is still as good"
    )
    play: PlaySettings = PlaySettings()
    cases: int | None = Field(
        default=200, ge=0, description="maximum number of held-out cases; 0 plays none"
    )
    rollouts: int = Field(default=1, ge=1, le=256, description="rollouts of each case")
    validation_cases: int = Field(
        default=24, ge=0, le=1000, description="validation cases that each file plays to compare"
    )
    margin: float = Field(
        default=0.05, gt=0, lt=1, description="a loss of reward that still counts as equal"
    )
    name: str = Field(default="", description="the model's name, as servers show it")
    llama_cpp: str = Field(default="", description="folder of llama.cpp; empty: look for it")
    vllm: bool = Field(default=False, description="play merged model and adapter on vLLM, too")
    hub: str = Field(default="", description="repository to upload to, as in me/my-model")
    upload: bool = Field(default=False, description="upload; otherwise list what would go up")
    register_with_ollama: bool = Field(default=False, description="create the model in Ollama")

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts on held-out cases, and of each file and the checkpoint on validation cases."""
        if self.cases is None:
            return None
        files = 2 + len(self.quantizations)
        return self.cases * (2 + self.rollouts) + (files + 1) * self.validation_cases
