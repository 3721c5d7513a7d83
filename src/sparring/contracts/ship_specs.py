"""The spec of a shipment: the checkpoint, the files to write, and how they are verified."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from sparring.contracts.specs import PlaySettings, PolicySpec, RunSpec

QUANTIZATIONS = (
    "f32", "f16", "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "q3_k_m", "q2_k",
)  # fmt: skip


class Form(StrEnum):
    """A form in which a trained model is shipped."""

    ADAPTER = "adapter"
    MERGED = "merged"
    GGUF = "gguf"
    OLLAMA = "ollama"


class ShipSpec(RunSpec):
    """A shipment. `policy` is the model that the training started from."""

    kind: Literal["ship"] = "ship"
    run: str = Field(description="id of the training run to ship")
    checkpoint: str = Field(default="", description="checkpoint to ship; empty: the proved one")
    proof: str = Field(default="", description="the proof of the checkpoint; empty if unproven")
    base: PolicySpec = PolicySpec()
    to: str = Field(description="folder to write; it must not exist")
    trial: bool = Field(
        default=False, description="ship nothing: the files are played, then removed"
    )
    forms: tuple[Form, ...] = Field(
        default=(), description="empty: adapter, merged and gguf, as far as packages are installed"
    )
    quantizations: tuple[str, ...] = Field(
        default=("q8_0",), description="quantizations of the GGUF files"
    )
    compare: bool = Field(
        default=False, description="choose the smallest GGUF file that is equal to the checkpoint"
    )
    play: PlaySettings = PlaySettings()
    cases: int | None = Field(
        default=200, ge=0, description="maximum number of held-out cases; 0 plays none"
    )
    rollouts: int = Field(default=1, ge=1, le=256, description="rollouts of each case")
    validation_cases: int = Field(
        default=24, ge=0, le=1000, description="validation cases that checkpoint and files play"
    )
    margin: float = Field(
        default=0.05, gt=0, lt=1, description="largest loss of mean reward that counts as equal"
    )
    name: str = Field(default="", description="the model's name on servers")
    llama_cpp: str = Field(default="", description="folder of llama.cpp; empty: search for it")
    vllm: bool = Field(default=False, description="play merged model and adapter on vLLM, too")
    hub: str = Field(default="", description="repository to upload to, as in me/my-model")
    upload: bool = Field(default=False, description="upload the files; otherwise only list them")
    register_with_ollama: bool = Field(default=False, description="create the model in Ollama")

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played."""
        return self.play

    @property
    def reads_cases_apart(self) -> bool:
        """False: a shipment trains nothing, so it may read held-out cases."""
        return False

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts on held-out cases, and of checkpoint and files on validation cases."""
        if self.cases is None:
            return None
        plays = self.max_validation_plays * self.validation_cases
        return self.cases * (2 + self.rollouts) + plays

    @property
    def max_validation_plays(self) -> int:
        """How often the validation cases are played: once by the checkpoint, once by each artefact,
        and once more on each other server."""
        forms = self.forms or (Form.ADAPTER, Form.MERGED, Form.GGUF)
        folders = sum(form in (Form.ADAPTER, Form.MERGED) for form in forms)
        files = len(self.quantizations) if {Form.GGUF, Form.OLLAMA} & set(forms) else 0
        return 1 + folders * (2 if self.vllm else 1) + files + self.register_with_ollama
