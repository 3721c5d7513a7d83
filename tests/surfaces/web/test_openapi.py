"""The OpenAPI document describes every route, and the app's types are made from it."""

from __future__ import annotations

import json

from sparring.surfaces.web.calls import web_operations
from sparring.surfaces.web.openapi import document
from tests.surfaces.web.viewed import ROOT


def test_every_operation_with_a_route_is_described() -> None:
    described = document()
    assert set(described["paths"]) == {f"/api/{name}" for name in web_operations()}
    text = json.dumps(described)
    names = set(described["components"]["schemas"])
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in names


def test_the_committed_document_is_current() -> None:
    committed = json.loads((ROOT / "web" / "openapi.json").read_text())
    current = document()
    committed["info"]["version"] = current["info"]["version"]
    assert committed == json.loads(json.dumps(current)), "run `make web`"
