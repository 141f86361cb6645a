"""Tools for testing programs that use Kafka: a real broker in a fraction of a second, and faults on request.

    with barnabas.testing.Broker() as broker:
        with broker.faults.fail("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2):
            ...

    broker.py    a broker of one's own            faults.py   what can go wrong, from Python
    cluster.py   several, and who leads what      plugin.py   fixtures for pytest: `kafka`, `kafka_cluster`
    kafka.py     what tests need besides          secure.py   the same with TLS, logins and permissions

A broker here is a process of its own, reached over the wire and over a private socket: what is tested against is what
runs in production. Names are loaded when they are first asked for, since pytest loads the plugin in every run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.faults import InvalidFault
    from barnabas.testing.broker import Broker, BrokerFailed
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.faults import Fault, Faults
    from barnabas.testing.kafka import Kafka, KafkaCluster
    from barnabas.testing.secure import KafkaSecure, SecureBroker

__all__ = [
    "Broker",
    "BrokerFailed",
    "Cluster",
    "Fault",
    "Faults",
    "InvalidFault",
    "Kafka",
    "KafkaCluster",
    "KafkaSecure",
    "SecureBroker",
]

_HOMES = {
    "Broker": "barnabas.testing.broker",
    "BrokerFailed": "barnabas.testing.broker",
    "Cluster": "barnabas.testing.cluster",
    "Fault": "barnabas.testing.faults",
    "Faults": "barnabas.testing.faults",
    "InvalidFault": "barnabas.protocol.faults",
    "Kafka": "barnabas.testing.kafka",
    "KafkaCluster": "barnabas.testing.kafka",
    "KafkaSecure": "barnabas.testing.secure",
    "SecureBroker": "barnabas.testing.secure",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
