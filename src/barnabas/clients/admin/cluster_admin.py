"""Everything that a tool can ask of a cluster, behind one door.

A tool opens a `ClusterAdmin` and takes the area that it needs: `cluster.topics`, `cluster.groups`, `cluster.configs`
and so on. Behind an area is one of three connections, which a tool need not know:

- `topics` is the public `Admin`, over librdkafka;
- the other areas speak Kafka's protocol directly (`clients/wire/connection`), for what librdkafka cannot ask;
- `list_topics` packs one request by hand (`clients/wire/topic_list`), because importing either of the other two takes
  longer than the list.

A connection is opened, and its library is imported, when an area is first used. All connections take the same
properties, under librdkafka's names. SASL with GSSAPI, and with OAUTHBEARER unless `oauth_cb` gives its token, and keys
in a keystore work in `topics` only: the other areas refuse them (`clients/security`).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.acls import Acls
    from barnabas.clients.admin.admin import Admin
    from barnabas.clients.admin.brokers import Brokers
    from barnabas.clients.admin.configs import Configs
    from barnabas.clients.admin.delegation_tokens import IssuedTokens
    from barnabas.clients.admin.features import Features
    from barnabas.clients.admin.groups import Groups
    from barnabas.clients.admin.log_dirs import LogDirs
    from barnabas.clients.admin.log_offsets import LogOffsets
    from barnabas.clients.admin.quotas import Quotas
    from barnabas.clients.admin.replicas import Replicas
    from barnabas.clients.admin.share_groups import ShareGroups
    from barnabas.clients.admin.transactions import Transactions
    from barnabas.clients.admin.users import Users
    from barnabas.clients.wire.connection import WireClient
    from barnabas.clients.wire.topic_list import ListedTopic

T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 30.0


class _opened_once(Generic[T]):  # noqa: N801 -- it is used as functools.cached_property is
    """What functools.cached_property is, without its lock.

    In Python 3.11 that is one for all instances, and held while a connection is opened: one broker that hangs then
    keeps all threads of a program from reaching any other.
    """

    def __init__(self, open: Callable[[Any], T]) -> None:
        self._open = open
        self.__doc__ = open.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        found: T = self._open(instance)
        vars(instance)[self._name] = found
        return found


class ClusterAdmin:
    """A cluster, for tools. Use it as a context manager, in one thread."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Nothing is opened yet. `properties` have librdkafka's names; `timeout` (seconds) holds for each call."""
        self._bootstrap_servers = bootstrap_servers
        self._properties = dict(properties or {})
        self._timeout = timeout
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def list_topics(self) -> list[ListedTopic]:
        """All topics by name, with their numbers of partitions and replicas.

        Raises BrokerUnreachable and RequestRefused, as all areas do.
        """
        from barnabas.clients.wire import topic_list

        if not self._properties:
            wait = topic_list.TIMEOUT if self._timeout is None else self._timeout
            found = topic_list.list_topics(self._bootstrap_servers, wait)
            if found is not None:
                return found
        return [
            topic_list.ListedTopic(topic.name, len(topic.partitions), topic.replication_factor)
            for topic in self.topics.topics()
        ]

    @_opened_once
    def topics(self) -> Admin:
        """Topics: their partitions, their configs, the offsets of their records. Raises InvalidClientConfig."""
        from barnabas.clients.admin import admin
        from barnabas.clients.logins import require_login

        timeout = admin.DEFAULT_TIMEOUT if self._timeout is None else self._timeout
        opened = self._opened.enter_context(
            admin.Admin(self._bootstrap_servers, timeout=timeout, config=self._properties)
        )
        require_login(self._bootstrap_servers, self._properties)
        return opened

    @_opened_once
    def groups(self) -> Groups:
        """Consumer groups: members, assignments, committed offsets."""
        from barnabas.clients.admin.groups import Groups

        return Groups(self.wire)

    @_opened_once
    def share_groups(self) -> ShareGroups:
        """Share groups: members, and how far their partitions are."""
        from barnabas.clients.admin.share_groups import ShareGroups

        return ShareGroups(self.wire)

    @_opened_once
    def transactions(self) -> Transactions:
        """Transactions: those that are open, and those that hang."""
        from barnabas.clients.admin.transactions import Transactions

        return Transactions(self.wire)

    @_opened_once
    def configs(self) -> Configs:
        """Configs of topics, brokers, loggers, groups and client metrics, and where each value comes from."""
        from barnabas.clients.admin.configs import Configs

        return Configs(self.wire)

    @_opened_once
    def replicas(self) -> Replicas:
        """Replicas: reassignments, and elections of leaders."""
        from barnabas.clients.admin.replicas import Replicas

        return Replicas(self.wire)

    @_opened_once
    def offsets(self) -> LogOffsets:
        """Where partitions begin and end."""
        from barnabas.clients.admin.log_offsets import LogOffsets

        return LogOffsets(self.wire)

    @_opened_once
    def brokers(self) -> Brokers:
        """Brokers: who is registered, and which APIs each serves."""
        from barnabas.clients.admin.brokers import Brokers

        return Brokers(self.wire)

    @_opened_once
    def log_dirs(self) -> LogDirs:
        """Log directories of brokers."""
        from barnabas.clients.admin.log_dirs import LogDirs

        return LogDirs(self.wire)

    @_opened_once
    def features(self) -> Features:
        """Features and their levels."""
        from barnabas.clients.admin.features import Features

        return Features(self.wire)

    @_opened_once
    def acls(self) -> Acls:
        """Access control lists: who may do what."""
        from barnabas.clients.admin.acls import Acls

        return Acls(self.wire)

    @_opened_once
    def quotas(self) -> Quotas:
        """Client quotas: how much users, client ids and addresses may use."""
        from barnabas.clients.admin.quotas import Quotas

        return Quotas(self.wire)

    @_opened_once
    def users(self) -> Users:
        """Users that log in by SCRAM."""
        from barnabas.clients.admin.users import Users

        return Users(self.wire)

    @_opened_once
    def delegation_tokens(self) -> IssuedTokens:
        """Delegation tokens: to log in as their owner for a while."""
        from barnabas.clients.admin.delegation_tokens import IssuedTokens

        return IssuedTokens(self.wire)

    @_opened_once
    def wire(self) -> WireClient:
        """The connection of the other areas, for a request that no area has yet. Raises InvalidClientConfig."""
        from barnabas.clients.wire.connection import WireClient

        self._check_properties()
        timeout = DEFAULT_TIMEOUT if self._timeout is None else self._timeout
        return self._opened.enter_context(
            WireClient(self._bootstrap_servers, properties=self._properties, timeout=timeout)
        )

    def _check_properties(self) -> None:
        """Refuse a misspelt property: the wire connection reads those about security, and would pass over it."""
        if self._properties:
            from barnabas.clients import config, security

            security.from_properties(self._properties)  # it says more of what is wrong than librdkafka does
            config.check(self._properties)
