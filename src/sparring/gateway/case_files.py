"""Cases and sessions as JSON for programs outside this process, without expected answers."""

from __future__ import annotations

import json
from typing import Any

from sparring.contracts.cases import Case
from sparring.gateway.sessions import Session, chat_messages


def case_record(case: Case) -> dict[str, Any]:
    """Return the case as JSON values: its id, its input, and the input as chat messages."""
    return {"id": case.id, "input": case.input, "messages": chat_messages(case)}


def case_text(case: Case) -> str:
    """Return the case as JSON text."""
    return json.dumps(case_record(case), ensure_ascii=False)


def session_record(session: Session) -> dict[str, str]:
    """Return the URLs, the key and the model name with which a program calls the model."""
    return {
        "base_url": session.base_url,
        "anthropic_base_url": session.anthropic_base_url,
        "api_key": session.api_key,
        "model": session.model,
    }
