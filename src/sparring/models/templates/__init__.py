"""Chat templates of Sparring and of TRL, and digests of the templates that models ship with.

Sparring's templates print tool schemas with the macros in `schemas.jinja`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

_BEGIN = re.compile(r"\{%(-?)\s*generation\s*(-?)%\}")
_END = re.compile(r"\{%(-?)\s*endgeneration\s*(-?)%\}")
_MACROS = re.compile(r"\b(tool|schema|key)_json\(")


@cache
def own_template(name: str) -> str:
    """Return Sparring's training template of this name."""
    return with_schemas(_read(f"{name}.jinja"))


def with_schemas(template: str) -> str:
    """Return a template, preceded by the macros for tool schemas if it uses them."""
    return _read("schemas.jinja") + template if _MACROS.search(template) else template


def without_generation_tags(template: str) -> str:
    """Return the template with `{% if true %}` in place of `{% generation %}`, a tag that only
    transformers supports."""
    template = _BEGIN.sub(r"{%\1 if true \2%}", template)
    return _END.sub(r"{%\1 endif \2%}", template)


def trl_template(name: str) -> str | None:
    """Return a template that TRL ships, without importing TRL; None if TRL does not have it."""
    package = importlib.util.find_spec("trl")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "chat_templates" / f"{name}.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else None


@cache
def known_digests() -> dict[str, dict[str, str]]:
    """Return the digests of the templates that models ship with, by family and model name."""
    known: dict[str, dict[str, str]] = json.loads(_read("originals.json"))
    return known


def _read(file: str) -> str:
    return (files("sparring.models.templates") / file).read_text(encoding="utf-8")
