"""Names of topics' configs, as people type them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextmanager
def suggest_config_names(names: Iterable[str]) -> Iterator[None]:
    """When a broker refuses one of these because there is no such config, have its error say which was meant."""
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.config.keys.all_keys import TOPIC_KEYS
    from barnabas.model.errors import ErrorCode
    from barnabas.model.remedies import Remedy, RemedyKind

    try:
        yield
    except RequestRefused as error:
        unknown = next((name for name in names if name not in TOPIC_KEYS), None)
        if error.code == ErrorCode.invalid_config and unknown is not None:
            error.with_remedy(Remedy(RemedyKind.CORRECT_CONFIG_NAME, unknown))
        raise
