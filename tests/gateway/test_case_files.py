"""A program outside of this process is told the input of its case, and never what is expected."""

import json

from sparring.contracts.cases import Case
from sparring.gateway.case_files import case_record, case_text, session_record
from sparring.gateway.sessions import Session

CASE = Case("c1", "What is 2 + 3?", expected="the secret 5")
SESSION = Session("http://x/v1", "http://x", "sk-key", "tiny", CASE, world=object())


def test_a_case_is_told_without_what_is_expected():
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    assert case_record(CASE) == {"id": "c1", "input": CASE.input, "messages": messages}
    assert "secret" not in case_text(CASE)


def test_the_text_is_json_with_readable_characters():
    case = Case("c", [{"role": "user", "content": "Größe?"}])
    assert json.loads(case_text(case)) == case_record(case)
    assert "Größe?" in case_text(case)


def test_a_session_is_told_by_addresses_key_and_model():
    assert session_record(SESSION) == {
        "base_url": "http://x/v1",
        "anthropic_base_url": "http://x",
        "api_key": "sk-key",
        "model": "tiny",
    }
