"""Writes the model card, the proof card, and `agent.json` of a shipment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.result_text import (
    ARTEFACT_LEGEND,
    artefact_grid,
    difference_grid,
    markdown_table,
    markdown_text,
    proof_basis,
)
from sparring.contracts.summaries import ArtefactRow, ExamplesRow, HeldOutRow, ProveSummary
from sparring.shipping.source import with_front_matter

SIGN = "model_signing sign key . --private_key ../KEY.pem --signature model.sig"
VERIFY = "model_signing verify key . --public_key ../KEY.pub.pem --signature model.sig"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The facts that the cards state, besides the proof and the artefacts."""

    name: str
    environment: str
    base: str
    is_base_public: bool
    licence: str
    run: str
    checkpoint: str
    steps: int
    tools: Sequence[str]
    instructions: str
    versions: Mapping[str, str]
    examples: int = 0
    left_out: Sequence[str] = ()


def model_card(
    facts: CardFacts,
    proof: ProveSummary | None,
    artefacts: Sequence[ArtefactRow],
    comparison: str,
) -> str:
    """Return the text of README.md: metadata for hubs, the proof, the files with how they compare
    with the checkpoint, and the limits."""
    metadata: dict[str, Any] = {"license": facts.licence or "other"}
    if facts.is_base_public:
        metadata["base_model"] = facts.base
    metadata |= {
        "pipeline_tag": "text-generation",
        "library_name": "transformers",
        "tags": ["sparring", "grpo", "tool-calling", "agent"],
    }
    if proof is not None:
        metadata["model-index"] = [_model_index(facts, proof)]
    tools = ", ".join(f"`{name}`" for name in facts.tools) or "none"
    parts = [
        f"# {facts.name}",
        f"{facts.base}, trained with GRPO by Sparring for the environment `{facts.environment}` "
        f"(run {facts.run}, {facts.checkpoint}, {facts.steps} steps).",
        f"Tools it was trained with: {tools}. `agent.json` has their schemas"
        + (
            ", the instructions and the worked examples."
            if facts.examples
            else " and the instructions."
        ),
        _proof_paragraph(proof),
        *_examples_paragraph(facts),
        "## Files",
        *_artefact_parts(artefacts),
        f"Each file was verified against the checkpoint. {comparison}.",
        "## How to run it",
        "`how_to_run.md` has the exact commands, and the lines that point an agent at the model.",
        "## Limits",
        f"The model was trained and measured on one task, with these instructions{_and(facts)} "
        "tools. "
        "Nothing is known about other tasks, other prompts, or safety. `proof_card.md` lists what "
        "was measured and what was not.",
        "## Provenance",
        f"Licence of the base: {facts.licence or 'unknown'}. "
        "`ship.json` has the SHA-256 of every other file, and the versions of the packages. To "
        "sign the folder, and to verify it elsewhere:",
        f"```bash\npip install model-signing pyOpenSSL\n{SIGN}\n{VERIFY}\n```",
    ]
    return with_front_matter(metadata, "\n\n".join(parts) + "\n")


def proof_card(
    facts: CardFacts,
    proof: ProveSummary | None,
    artefacts: Sequence[ArtefactRow],
    held_out: HeldOutRow | None,
    without: ExamplesRow | None = None,
) -> str:
    """Return the text of proof_card.md: the measurements, and what was not measured."""
    parts = [f"# What is proved about {facts.name}", *_examples_paragraph(facts)]
    if without is not None:
        parts.append(f"The mean reward of the checkpoint {without.sentence}.")
    if proof is None:
        parts.append(
            "**Unproven.** No proof compares this checkpoint with the base model on held-out "
            "cases, so it is not known whether the model improved."
        )
    else:
        parts += ["## The training", f"**{proof.verdict}**: {proof.sentence}"]
        parts.append(markdown_table(difference_grid(proof)))
        parts.append(" ".join(map(markdown_text, proof_basis(proof))))
        parts.append(
            f"Digest of the cases: `{proof.cases_digest[:16]}`; candidates compared on them: "
            f"{proof.picked_from}."
        )
    parts += ["## The files", *_artefact_parts(artefacts)]
    parts += [_artefact_sentence(each) for each in artefacts]
    if held_out is not None:
        parts += [
            f"## On held-out cases: {held_out.artefact}",
            f"Compared with the checkpoint: {held_out.sentence}.",
            f"Compared with the base: {held_out.against_base}.",
        ]
    lines = [*_not_measured(artefacts, held_out), *facts.left_out]
    parts += ["## Not measured", *(f"- {line}" for line in lines)]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"


def _model_index(facts: CardFacts, proof: ProveSummary) -> dict[str, Any]:
    rows = {"reward": proof.reward, **proof.measures}
    metrics = [
        {"type": _slug(name), "name": f"{name} (held-out)", "value": round(row.after, 4)}
        for name, row in rows.items()
        if row
    ]
    return {
        "name": facts.name,
        "results": [
            {
                "task": {"type": "text-generation"},
                "dataset": {
                    "type": _slug(facts.environment or "cases"),
                    "name": f"{facts.environment}, {proof.cases} held-out cases",
                },
                "metrics": metrics,
            }
        ],
    }


def _proof_paragraph(proof: ProveSummary | None) -> str:
    if proof is None:
        return "**Unproven**: the model was not compared with its base on held-out cases."
    return f"On held-out cases, compared with its base: **{proof.verdict}** ({proof.sentence})."


def _artefact_parts(artefacts: Sequence[ArtefactRow]) -> list[str]:
    return [markdown_table(artefact_grid(artefacts)), f"{ARTEFACT_LEGEND}."]


def _and(facts: CardFacts) -> str:
    return ", worked examples and" if facts.examples else " and"


def _examples_paragraph(facts: CardFacts) -> list[str]:
    """Return with how many worked examples the figures were measured; nothing if there are none."""
    if not facts.examples:
        return []
    shown = "1 worked example" if facts.examples == 1 else f"{facts.examples} worked examples"
    return [
        f"Every figure was measured with the {shown} in `agent.json` before the question. They are "
        "part of the agent: requests must send them, as `how_to_run.md` shows."
    ]


def _artefact_sentence(artefact: ArtefactRow) -> str:
    prompts = artefact.prompts
    text = (
        f"{artefact.name}: {prompts.conversations} prompts ({prompts.tokens} tokens) give "
        "the ids that were trained on"
    )
    if gap := artefact.gap:
        text += f"; KL divergence from the checkpoint {gap.kl:.1e}"
    if played := artefact.validation:
        text += f"; on validation cases {played.likeness}: {played.sentence}"
    for server, played in artefact.servers.items():
        text += f"; on {server} {played.likeness}: {played.sentence}"
    if artefact.warning:
        text += f". Warning: {artefact.warning}"
    return f"- {text}."


def _not_measured(artefacts: Sequence[ArtefactRow], held_out: HeldOutRow | None) -> list[str]:
    lines = []
    servers = {name for each in artefacts for name in each.played_by}
    for server in ("vLLM", "Ollama"):
        if server not in servers:
            lines.append(f"{server}: the commands are written from its documentation, not run here")
    unplayed = [
        str(each.name) for each in artefacts if held_out is None or each.name != held_out.artefact
    ]
    if unplayed:
        lines.append(f"held-out cases with {', '.join(unplayed)}")
    lines.append(
        "GPUs, other quantisations, other tasks, and prompts other than those in agent.json"
    )
    return lines


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "measure"
