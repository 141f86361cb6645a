"""Secrets on the command line, which every user of the machine can read in the list of processes.

Kafka's tools take them there, and so it works; but whoever does it is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.output import remark

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_CLIENTS: Final = frozenset({"sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"})
"""What librdkafka has under names that brokers do not have."""
_PLACEHOLDER: Final = re.compile(r"\$\{[^}:]+:[^}]+\}")


def warn_of_secrets(values: Mapping[str, str], instead: str) -> None:
    """Name the secrets among settings that stand on the command line, and say where to put them `instead`.

    A value with a placeholder of `config.providers` stands elsewhere.
    """
    written = [name for name, value in values.items() if value and not _PLACEHOLDER.search(value)]
    if not written:
        return
    from barnabas.model.config.keys.all_keys import broker_key_of

    keys = {name: broker_key_of(name) for name in written}
    secrets = [name for name, key in keys.items() if name in _OF_CLIENTS or (key is not None and key.sensitive)]
    if secrets:
        remark(
            f"Warning: other users of this machine can read the value of {', '.join(secrets)} in the list of "
            f"processes. {instead}"
        )
