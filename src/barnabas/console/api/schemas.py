"""Schemas of a registry, to look at: subjects, their versions, and what each says. Nothing is changed here.

The registry is asked in the console's own name: whoever may use the console sees what it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.routing import Route

from barnabas.console.api.answers import NotFound, answer, endpoint
from barnabas.console.messages.registry import Registry, RegistryFailed
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_SUBJECTS = 20_000
MOST_TEXT = 1_000_000


@endpoint
async def listing(request: Request) -> object:
    """All subjects."""
    registry = _registry_of(request)

    def find() -> list[str]:
        found = registry.ask("subjects")
        return sorted(str(each)[:500] for each in found)[:MOST_SUBJECTS] if isinstance(found, list) else []

    try:
        return {"registry": registry.address, "subjects": await anyio.to_thread.run_sync(find)}
    except RegistryFailed as error:
        return answer({"error": f"The registry does not answer: {error}"}, 503)


@endpoint
async def describe(request: Request) -> object:
    """A subject: its versions, and one of them in full."""
    registry, subject = _registry_of(request), request.query_params.get("subject", "")
    version = request.query_params.get("version", "latest")
    if subject in ("", ".", "..") or (version != "latest" and not version.isdecimal()):
        raise NotFound("There is no such subject.")

    def find() -> dict[str, Any]:
        versions = registry.ask("subjects", subject, "versions")
        found = registry.object("subjects", subject, "versions", version)
        try:
            level = registry.object("config", subject, query="?defaultToGlobal=true").get("compatibilityLevel")
        except RegistryFailed:
            level = None
        return {
            "subject": subject,
            "versions": [each for each in as_list(versions) if isinstance(each, int)][:10_000],
            "version": found.get("version"),
            "id": found.get("id"),
            "type": str(found.get("schemaType", "AVRO")),
            "references": [
                str(each.get("name")) for each in as_list(found.get("references")) if isinstance(each, dict)
            ],
            "text": str(found.get("schema", ""))[:MOST_TEXT],
            "compatibility": None if level is None else str(level),
        }

    try:
        return await anyio.to_thread.run_sync(find)
    except RegistryFailed as error:
        raise NotFound(f"There is no subject {subject}, or the registry does not tell: {error}") from error


def as_list(found: object) -> list[Any]:
    """What a registry gives as a list; an empty one if it gives something else."""
    return found if isinstance(found, list) else []


def _registry_of(request: Request) -> Registry:
    found: Registry | None = request.app.state.schemas.registry
    if found is None:
        words = request.app.state.settings.with_remedy
        raise NotFound(words("The console has no schema registry.", Remedy(RemedyKind.GIVE_REGISTRY)))
    return found


ROUTES = (Route("/api/schemas", listing), Route("/api/schema", describe))
