"""The pages outside the app: sign-in, and short messages."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from starlette.responses import HTMLResponse

_STYLE = """\
:root{color-scheme:light dark;--text:#1b1f27;--soft:#5b6472;--ground:#f7f8fa;--card:#fff;--line:#dfe3ea;--accent:#3457d5}
@media(prefers-color-scheme:dark){:root{--text:#e6e9ef;--soft:#9aa3b2;--ground:#0f1115;--card:#171a21;--line:#2a2f3a;--accent:#8ea6ff}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:28px 32px;max-width:24rem;margin:1rem}
h1{font-size:17px;margin:0 0 12px}p{color:var(--soft);margin:8px 0}p[role=alert]{color:var(--text);font-weight:600}
label{display:block;font-size:13px;color:var(--soft)}input{box-sizing:border-box;width:100%;padding:8px 10px;margin:4px 0 12px;border:1px solid var(--line);border-radius:7px;background:transparent;color:inherit;font:inherit}
button{padding:8px 14px;border:0;border-radius:7px;background:var(--accent);color:var(--ground);font:inherit;font-weight:600}code{font:13px ui-monospace,monospace}
"""  # noqa: E501
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sparring</title>
<style>{style}</style>
<main><h1>Sparring</h1>{body}</main>
</html>
"""
_FORM = """\
<form method="post" action="/enter">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
<button>Sign in</button>
</form>
<p>The owner of the project makes tokens with <code>sparring token create</code>.</p>
"""
_LINK = """\
<p>Open the link that <code>sparring view</code> printed in the terminal. A link works once, in one
browser. Opening a used link prints a new link in the terminal.</p>
"""


def sign_in(has_tokens: bool, *, status: int, is_wrong: bool = False) -> HTMLResponse:
    """Return the sign-in page: a form for a token, or directions to the sign-in link."""
    cause = (
        "This token is not valid." if has_tokens else "This link is unknown or was used already."
    )
    wrong = f"<p role=alert>{cause}</p>"
    return _page((wrong if is_wrong else "") + (_FORM if has_tokens else _LINK), status)


def message(text: str, *, status: int) -> HTMLResponse:
    """Return a page with a short text."""
    return _page(f"<p>{escape(text)}</p>", status)


def _page(body: str, status: int) -> HTMLResponse:
    content = _PAGE.format(style=_STYLE, body=body)
    headers = {"content-security-policy": _POLICY}
    return HTMLResponse(content, status_code=status, headers=headers)
