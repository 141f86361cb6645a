"""The brokers of a cluster: which are registered, where they listen, which APIs they serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import CLIENT_ID, Node
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from barnabas.clients.wire.connection import WireClient
    from barnabas.machines.security.acls import Operation


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A broker and where clients reach it; a fenced one is registered, and down."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller (None while there is none), and its brokers by id."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[RegisteredBroker, ...]


class Brokers:
    """The brokers of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def up(self) -> dict[int, Node]:
        """The brokers that are up, by id."""
        return {node.id: node for node in self._wire.nodes()}

    def describe(self, *, include_fenced: bool = False) -> ClusterDescription:
        """The cluster and its brokers, on request with those that are down."""
        from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

        answer = self._wire.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced)
        )
        return ClusterDescription(
            answer.cluster_id,
            None if answer.controller_id < 0 else answer.controller_id,
            tuple(
                RegisteredBroker(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
                for one in sorted(answer.brokers, key=lambda broker: broker.broker_id)
            ),
        )

    def may(self, operation: Operation) -> bool:
        """Whether whoever asks is allowed an operation on the cluster."""
        from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

        from barnabas.machines.security.acls import bits

        answer = self._wire.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=False)
        )
        return bool(answer.cluster_authorized_operations & bits((operation,)))

    def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that is down for good. Raises RequestRefused."""
        from kio.schema.types import BrokerId
        from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

        answer = self._wire.ask(UnregisterBrokerRequest(broker_id=BrokerId(broker_id)))
        if answer.error_code != ErrorCode.none:
            raise RequestRefused(
                answer.error_code,
                answer.error_message or answer.error_code.name.upper(),
                on_cluster("unregister brokers", "Alter"),
            )

    def api_versions(self) -> dict[RegisteredBroker, dict[int, tuple[int, int]]]:
        """The oldest and the newest version of each API, by its key, that each broker serves."""
        from kio.schema.api_versions.v4.request import ApiVersionsRequest
        from kio.schema.metadata.v13.request import MetadataRequest

        metadata = self._wire.ask(
            MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        )
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__)
        found = {}
        for one in sorted(metadata.brokers, key=lambda broker: broker.node_id):
            answer = self._wire.ask(request, at=Node(one.node_id, one.host, one.port))
            versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            found[RegisteredBroker(one.node_id, one.host, one.port, one.rack)] = versions
        return found
