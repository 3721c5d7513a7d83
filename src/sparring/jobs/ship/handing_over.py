"""Publishes a shipment: writes cards and manifest, renames the folder, uploads it if requested."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sparring.contracts.kinds import Form
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import ArtefactRow, HeldOutRow, ProveSummary
from sparring.jobs.ship.context import ShipContext, runnable_of, sibling_run
from sparring.jobs.ship.verdict import ShipVerdict
from sparring.run_folder.checkpoint_list import Checkpoint
from sparring.run_folder.files import read_json_or_empty, write_text
from sparring.shipping.artefacts import Artefact
from sparring.shipping.cards import SIGN, CardFacts, model_card, proof_card
from sparring.shipping.how_to_run import Runnable, agent_lines, commands, how_to_run
from sparring.shipping.source import base_licence, is_public
from sparring.shipping.template import shipped_template

_PACKAGES = ("sparring", "torch", "transformers", "peft", "trl", "gguf", "xllamacpp")
# The folders of an absolute path, which begins a word or follows `=` or `file://`.
_FOLDERS_OF_PATH = re.compile(r"(?:file://|(?<![\w/:.]))~?/(?:[^\s,;/]+/)*(?=[^\s,;/])")


class Delivery:
    """Publishes the folder of a shipment, as its last stage."""

    def __init__(self, shipping: ShipContext) -> None:
        self._shipping = shipping
        self._spec = shipping.spec
        self._source = shipping.source
        self._ship = shipping.ship

    def hand_over(self, chosen: Artefact, verdict: ShipVerdict) -> None:
        """Write cards and manifest, rename the folder into place, and upload it if requested and if
        the verdict is fine."""
        is_file = chosen.form is Form.GGUF
        gguf = self._shipping.rows[chosen.name].path if is_file else ""
        runnable = runnable_of(self._shipping, gguf)
        verdict.commands = commands(runnable)
        verdict.agent_lines = agent_lines(runnable.name, runnable.port)
        if not self._ship.is_delivered:
            self._complete(runnable, verdict)
        verdict.uploads = self._pass_on(is_fine=verdict.is_fine)

    def _complete(self, runnable: Runnable, verdict: ShipVerdict) -> None:
        held_out = verdict.held_out
        facts, proof = self._facts(), self._shipping.proof_summary()
        artefacts = list(self._shipping.rows.values())
        place, without = self._ship.staging, self._shipping.without_examples
        write_text(place / "chat_template.jinja", shipped_template(self._source.template))
        write_text(place / "how_to_run.md", how_to_run(runnable))
        comparison = verdict.problem or verdict.comparison
        write_text(place / "README.md", model_card(facts, proof, artefacts, comparison))
        write_text(place / "proof_card.md", proof_card(facts, proof, artefacts, held_out, without))
        self._ship.seal(self._manifest(facts, artefacts, held_out, proof))

    def _facts(self) -> CardFacts:
        shipping = self._shipping
        first = shipping.conversations[0] if shipping.conversations else None
        tools = [str(tool["function"]["name"]) for tool in first.tools] if first else []
        return CardFacts(
            name=shipping.name,
            environment=self._spec.environment,
            base=self._source.base_name,
            is_base_public=is_public(self._source.base),
            licence=base_licence(self._source),
            run=self._spec.run,
            checkpoint=shipping.checkpoint.path.name,
            steps=shipping.checkpoint.step,
            tools=tools,
            instructions=first.system if first else "",
            versions=_versions(),
            examples=len(shipping.task.examples),
            left_out=tuple(shipping.warnings),
        )

    def _manifest(
        self,
        facts: CardFacts,
        artefacts: Sequence[ArtefactRow],
        held_out: HeldOutRow | None,
        proof: ProveSummary | None,
    ) -> dict[str, Any]:
        training = read_json_or_empty(sibling_run(self._shipping.folder, self._spec.run).spec)
        return {
            "format": FORMAT,
            "name": facts.name,
            "environment": facts.environment,
            "training": self._spec.run,
            "checkpoint": facts.checkpoint,
            "weights": _weights(self._shipping.checkpoint),
            "base": facts.base,
            "licence": facts.licence,
            "codec": self._source.codec().digest,
            "settings": _without_paths(training.get("settings", {})),
            "proof": _shareable(proof),
            "artefacts": [row.as_json() for row in artefacts],
            "held_out": held_out.as_json() if held_out else None,
            "examples": facts.examples,
            "versions": dict(facts.versions),
            "sign": SIGN,
        }

    def _pass_on(self, *, is_fine: bool) -> list[str]:
        """Upload the folder, or list what an upload would send. Return lines for the summary."""
        from sparring.shipping.folder import upload, would_upload

        done = []
        if self._spec.register_with_ollama:
            done.append(f"registered with Ollama as {self._shipping.name}")
        if self._spec.hub and self._spec.upload and not is_fine:
            done.append(f"not uploaded to {self._spec.hub}, because of the verdict")
        elif self._spec.hub and self._spec.upload:
            done.append(f"uploaded to {upload(self._ship.place, self._spec.hub)}")
        elif self._spec.hub:
            done += would_upload(self._ship.place, self._spec.hub)
        return done


def _shareable(proof: ProveSummary | None) -> dict[str, Any] | None:
    """Return a proof's summary without fields that quote held-out cases or local paths."""
    if proof is None:
        return None
    hidden = ("flips", "still_fails", "audit", "left_out", "checkpoint")
    shown = {name: value for name, value in proof.as_json().items() if name not in hidden}
    without_paths: dict[str, Any] = _without_paths(shown)
    return without_paths


def _without_paths(value: Any) -> Any:
    """Return a JSON value in which each absolute path in a text is replaced by its last part."""
    if isinstance(value, Mapping):
        return {name: _without_paths(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(each) for each in value]
    return _FOLDERS_OF_PATH.sub("", value) if isinstance(value, str) else value


def _weights(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the manifest entries of the checkpoint's weight files."""
    files = checkpoint.manifest["files"]
    return {name: entry for name, entry in files.items() if name.endswith(".safetensors")}


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
