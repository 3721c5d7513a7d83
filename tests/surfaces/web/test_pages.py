"""The pages outside the app are small, styled by a hash, and escape what they say."""

from __future__ import annotations

import base64
import hashlib
import re

from sparring.surfaces.web.pages import message, sign_in


def test_the_style_is_allowed_by_its_hash_alone() -> None:
    page = sign_in(True, status=401, is_wrong=True)
    text = bytes(page.body).decode()
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page.headers["content-security-policy"]
    assert "not valid" in text
    assert 'name="token"' in text


def test_without_tokens_the_page_says_where_the_link_is() -> None:
    text = bytes(sign_in(False, status=200).body).decode()
    assert "sparring view" in text
    assert "<form" not in text


def test_a_message_is_text() -> None:
    page = message("<b>no</b>", status=404)
    assert page.status_code == 404
    assert b"&lt;b&gt;" in page.body
