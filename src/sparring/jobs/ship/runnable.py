"""Collects the facts that a shipment's commands depend on."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.contracts.rollouts import Rollout
from sparring.contracts.ship_specs import Form
from sparring.jobs.ship.context import ShipContext
from sparring.jobs.ship.playing import CHECKPOINT
from sparring.shipping.how_to_run import Runnable
from sparring.shipping.source import adapter_rank, context_length, is_public


def runnable_of(shipping: ShipContext, gguf: str = "") -> Runnable:
    """Return the facts for the commands; `gguf` is the path of the GGUF file that they name."""
    source = shipping.source
    forms = {row.form for row in shipping.rows.values()}
    return Runnable(
        name=shipping.name,
        family=source.family,
        base=source.base_name,
        is_base_public=is_public(source.base),
        context=context_length(source),
        has_adapter=Form.ADAPTER.value in forms,
        adapter_rank=adapter_rank(source),
        has_merged=Form.MERGED.value in forms,
        gguf=gguf,
        has_ollama=bool(gguf) and Form.OLLAMA in shipping.spec.forms,
        has_tools=any(each.tools for each in shipping.conversations),
        thinks=is_thinking(shipping.player.rollouts_of(CHECKPOINT)),
    )


def is_thinking(rollouts: Sequence[Rollout]) -> bool:
    """Return whether more than half of the assistant messages contain thinking."""
    messages = [each for rollout in rollouts for each in rollout.messages]
    written = [each for each in messages if each.role == "assistant"]
    return 2 * sum(bool(each.thinking) for each in written) > len(written)
