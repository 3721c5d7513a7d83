"""Resolves measures by name: built-in measures, plugins, and the user's own as `module:name`.

A package adds a measure with an entry point in the group `sparring.measures`.
"""

from __future__ import annotations

import importlib

from sparring.contracts.errors import MeasureError
from sparring.installed import load_plugin, plugin_names
from sparring.measures.builtin import BUILTIN
from sparring.measures.declaration import Judge, Measure, measure

GROUP = "sparring.measures"


def resolve(reference: Measure | str | Judge) -> Measure:
    """Return the measure for a measure, a function, or the name of a measure."""
    if isinstance(reference, Measure):
        return reference
    if callable(reference):
        return measure(reference)
    if isinstance(reference, str):
        return _by_name(reference)
    raise MeasureError(f"{reference!r} is not a measure; pass a @measure function or a name")


def _by_name(name: str) -> Measure:
    if name in BUILTIN:
        return BUILTIN[name]()
    if ":" not in name and (plugin := load_plugin(GROUP, name)) is not None:
        return resolve(plugin)
    module, _, attribute = name.partition(":")
    if not attribute:
        known = ", ".join(sorted([*BUILTIN, *plugin_names(GROUP)]))
        raise MeasureError(
            f"there is no built-in measure {name!r}; use one of {known}, or name your own as "
            "`module:name`"
        )
    try:
        return resolve(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise MeasureError(f"measure {name!r} cannot be loaded: {error}") from error
