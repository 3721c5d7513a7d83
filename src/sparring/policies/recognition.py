"""Finds the family of a model by its own chat template.

Names and architectures are not enough: the names of Qwen3 and Qwen3.5 share a prefix, but their
call formats differ. An unknown template is refused, and the error shows the difference from the
most similar known template, if one is similar. White space in templates is ignored.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from sparring.contracts.errors import MissingPackage, UnknownFamily
from sparring.models.templates import known_digests, trl_template, without_generation_tags
from sparring.policies.families import TABLE, Family, family_named

_SIMILAR = 0.6
_LINES_SHOWN = 12
_GENERATION_TAG = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")


def recognise(tokenizer: Any) -> Family:
    """Return the family whose models have this tokenizer's chat template. Raises UnknownFamily if
    there is none."""
    template = own_template(tokenizer)
    if not template:
        raise UnknownFamily(
            f"this model has no chat template, so its family is unknown; {_WAY_OUT}"
        )
    digest = template_digest(template)
    if name := known_templates().get(digest):
        return family_named(name)
    if trained := _training_templates().get(digest):
        return trained
    raise UnknownFamily(
        f"Sparring does not know the chat template of this model; {_nearest(template)}{_WAY_OUT}"
    )


_WAY_OUT = (
    "if its format is that of a known family, name that family (--family, or train(family=…)); "
    "otherwise pass your own Family (docs/families.md lists the families and shows how to add one)"
)


def own_template(tokenizer: Any) -> str:
    """Return the chat template of a tokenizer; if it has several, its default template. Empty if it
    has none."""
    template = getattr(tokenizer, "chat_template", None) or ""
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()), "")
    return str(template)


def template_digest(template: str) -> str:
    """Return the SHA-256 of a template without white space and `generation` tags, so that
    reformatted copies of a template have the same digest."""
    text = "".join(_GENERATION_TAG.sub("", template).split())
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def known_templates() -> dict[str, str]:
    """Return a map from the digests of models' own templates to the names of their families."""
    return {digest: name for name, models in known_digests().items() for digest in models.values()}


@cache
def _training_templates() -> dict[str, Family]:
    """Return a map from the digests of training templates, which trained models come with, to their
    families."""
    found: dict[str, Family] = {}
    for name in TABLE:
        try:
            family = family_named(name)
        except MissingPackage:
            continue
        modes = ("auto", "on", "off") if family.can_switch_thinking else ("auto",)
        for thinking, history in itertools.product(modes, ("drop", "keep")):
            adapted = family.adapted(thinking, history)
            chosen = family if adapted == family else adapted
            shipped = without_generation_tags(adapted.template)
            found |= {template_digest(each): chosen for each in (adapted.template, shipped)}
    return found


def _nearest(template: str) -> str:
    """Describe the difference from the most similar known template; empty if none is similar."""
    lines = template.splitlines()
    best, name, original = _SIMILAR, "", []
    for candidate, text in _known_texts():
        known = text.splitlines()
        matcher = difflib.SequenceMatcher(None, known, lines, autojunk=False)
        if matcher.real_quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, name, original = ratio, candidate, known
    if not name:
        return ""
    diff = [
        line
        for line in difflib.unified_diff(original, lines, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    shown = "\n".join(line[:160] for line in diff[:_LINES_SHOWN])
    more = f"\n… and {len(diff) - _LINES_SHOWN} more lines" if len(diff) > _LINES_SHOWN else ""
    return f"it differs from the template of {name} in these lines:\n{shown}{more}\n"


def _known_texts() -> Iterator[tuple[str, str]]:
    for name, entry in TABLE.items():
        for model in entry.models:
            if text := trl_template(model):
                yield name, text
