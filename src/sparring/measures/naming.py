"""Measures by name: the ready ones, and the user's own as `module:name`."""

from __future__ import annotations

import importlib

from sparring.contracts.errors import MeasureError
from sparring.measures.declaration import Judge, Measure, measure
from sparring.measures.ready import READY


def resolve(wanted: Measure | str | Judge) -> Measure:
    """A measure from an object, the name of a ready one, or `module:name`."""
    if isinstance(wanted, Measure):
        return wanted
    if callable(wanted):
        return measure(wanted)
    if isinstance(wanted, str):
        return _by_name(wanted)
    raise MeasureError(f"{wanted!r} is no measure; give a @measure function or a name")


def _by_name(name: str) -> Measure:
    if name in READY:
        return READY[name]()
    module, _, attribute = name.partition(":")
    if not attribute:
        raise MeasureError(
            f"there is no ready measure {name!r}; ready are {', '.join(sorted(READY))}. "
            "Name one of your own as `module:name`"
        )
    try:
        return resolve(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise MeasureError(f"measure {name!r} cannot be loaded: {error}") from error
