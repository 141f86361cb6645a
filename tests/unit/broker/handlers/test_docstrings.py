"""Handlers say in their first words which versions they serve, and the registry agrees."""

from __future__ import annotations

from importlib import import_module

import pytest

from barnabas.broker.serving.registry import APIS, Api


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_a_handler_names_its_api_and_versions(api: Api) -> None:
    name = "".join(word.capitalize() for word in api.key.name.split("_"))
    versions = f"v{api.oldest}" if api.oldest == api.newest else f"v{api.oldest}–{api.newest}"
    module = import_module(f"barnabas.broker.handlers.{api.handler.split(':')[0]}")
    assert f"{name} {versions}" in (module.__doc__ or "")
    assert callable(api.load())
