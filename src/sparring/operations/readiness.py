"""Refuses what cannot start on this machine, before a run exists.

Packages and keys are looked for only if the run's processes start here: with another launcher, they
are needed on other hosts.
"""

from __future__ import annotations

from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import LOCAL, RunSpec
from sparring.endpoints import refuse_missing_key
from sparring.installed import require_extra

# The extra that each kind of run needs; an evaluation needs one only for weights in its process.
_EXTRAS = {"train": "train", "check": "train", "prove": "train", "ship": "train", "eval": "local"}
_BY_SERVER = ", or use a model behind a server with --endpoint URL"


def refuse_unready(spec: RunSpec) -> None:
    """Raise MissingPackage or InvalidInput if a run of this spec lacks a package or a key."""
    if spec.supervision.launcher != LOCAL:
        return
    others = spec.others if isinstance(spec, CheckSpec) else ()
    for endpoint in (*spec.policy.endpoints, *others):
        refuse_missing_key(endpoint)
    is_eval = spec.kind == "eval"
    if spec.kind in _EXTRAS and not (is_eval and spec.policy.kind != "transformers"):
        require_extra(_EXTRAS[spec.kind], f"`{spec.kind}`", _BY_SERVER if is_eval else "")
