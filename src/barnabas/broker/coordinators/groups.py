"""The group coordinators of this broker: the machine of groups over the partitions of `__consumer_offsets`.

The machine's modules are loaded with the first partition: a broker without groups starts without them.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.coordinators.runtime import CoordinatorLog, CoordinatorParts, Runtime
from barnabas.broker.serving.answers import Later
from barnabas.broker.tasks import TaskSet
from barnabas.machines.groups.settings import GroupSettings, MigrationPolicy
from barnabas.model.config.group import number
from barnabas.model.config.keys.all_keys import GROUP_KEYS
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidConfig,
    InvalidGroupId,
    UnsupportedVersion,
)
from barnabas.model.internal_topics import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.coordinators.share_persister import SharePersister, StatePartition
    from barnabas.broker.serving.caller import Caller
    from barnabas.broker.settings import Changed, Settings
    from barnabas.machines.controller.image import ClusterImage, ConfigResource
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.share.offsets import InitializeStates
    from barnabas.machines.groups.table import GroupOutcome, PackedOutcome
    from barnabas.machines.outcome import Response
    from barnabas.metadata.images.cache import Delta

logger = logging.getLogger(__name__)

GROUP_VERSION: Final = "group.version"
CONSUMER_PROTOCOL_SINCE: Final = 1
SHARE_VERSION: Final = "share.version"
SHARE_PROTOCOL_SINCE: Final = 1
DEAD_LETTERS_SINCE: Final = 2


class GroupCoordinators:
    """The groups that this broker coordinates."""

    def __init__(self, parts: CoordinatorParts, settings: Settings) -> None:
        self._metadata = parts.metadata
        self._settings = settings
        self._group_settings = group_settings(settings)
        self._overrides: dict[str, Mapping[str, str]] = {}
        """By group id; as the cluster's image has them."""
        self._overridden: dict[str, tuple[Mapping[str, str], GroupSettings, GroupSettings]] = {}
        """By group id: its overrides and the broker's settings, and the settings that follow from both."""
        log = CoordinatorLog(
            topic=CONSUMER_OFFSETS,
            load_buffer_bytes=settings.number("offsets.load.buffer.size"),
            compression=settings.number("offsets.topic.compression.codec"),
        )
        self.runtime: Runtime[GroupCoordinator] = Runtime(
            log, self._make_machine, parts, catch_up=self._catch_up, send=self._send
        )
        self._make_persister: Callable[[], SharePersister] | None = None
        self._persister: SharePersister | None = None
        self._tasks = TaskSet()
        self._note_overrides(parts.metadata.image, parts.metadata.image.configs)
        settings.subscribe(self._on_settings)
        parts.metadata.subscribe(self._on_change)

    def ask(
        self,
        group_id: str,
        decide: Callable[[GroupCoordinator, Call[Response], int], PackedOutcome],
        caller: Caller,
        version: int,
        failure: Callable[[ApiError], Response],
        *,
        may_be_empty: bool = False,
        only_reads: bool = False,
    ) -> Response | Future[Response]:
        """As `ask_at_once`, for handlers that wait for a future, and ask more after that."""
        response = self.ask_at_once(
            group_id, decide, caller, version, failure, may_be_empty=may_be_empty, only_reads=only_reads
        )
        return response.future() if isinstance(response, Later) else response

    def ask_at_once(
        self,
        group_id: str,
        decide: Callable[[GroupCoordinator, Call[Response], int], PackedOutcome],
        caller: Caller,
        version: int,
        failure: Callable[[ApiError], Response],
        *,
        may_be_empty: bool = False,
        only_reads: bool = False,
        may_see: Callable[[str], bool] | None = None,
    ) -> Response | Later[Response]:
        """Let a group's coordinator decide a request; `only_reads` if the request changes nothing.

        `may_see` tells whether the client may know of a topic; None if of all. `failure` makes the response for an
        error that keeps the coordinator from deciding. The group id may be empty only for the oldest clients, which
        commit offsets without a group.

        A response that comes later is handed on while the coordinator answers others. Whoever takes it must not ask
        again before that is done; a connection does not (`net/connection`).
        """
        if not group_id and not may_be_empty:
            return failure(InvalidGroupId("The group id must not be empty."))
        call = Call(caller.client_id or "", caller.host, version, failure)
        call.may_see = may_see
        try:
            shard = self.runtime.find(group_id)
            if (machine := shard.machine) is not None and machine.deletions.under_way:
                check_not_deleted(shard, group_id)
        except ApiError as error:
            return failure(error)
        if only_reads:
            shard.read(decide, call)
        else:
            shard.ask(decide, call)
        return call.given()

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether the consumer group protocol is switched on."""
        return self._metadata.image.features.get(GROUP_VERSION, 0) >= CONSUMER_PROTOCOL_SINCE

    def check_consumer_protocol(self) -> None:
        """Raises UnsupportedVersion while the consumer group protocol is switched off."""
        if not self.has_consumer_protocol:
            raise UnsupportedVersion(
                f"The group protocol 'consumer' is switched off: {GROUP_VERSION} is 0. Use group.protocol=classic, or "
                f"raise {GROUP_VERSION} to {CONSUMER_PROTOCOL_SINCE}."
            )

    def keep_states_by(self, make_persister: Callable[[], SharePersister]) -> None:
        """Keep the states of share partitions there; it is made when the first is needed."""
        self._make_persister, self._persister = make_persister, None

    @property
    def persister(self) -> SharePersister:
        """Where the states of share partitions are kept."""
        if self._persister is None:
            assert self._make_persister is not None, "the broker is not put together yet"
            self._persister = self._make_persister()
        return self._persister

    @property
    def has_dead_letters(self) -> bool:
        """Whether share groups may have dead letters."""
        return self._metadata.image.features.get(SHARE_VERSION, 0) >= DEAD_LETTERS_SINCE

    def check_share_protocol(self) -> None:
        """Raises UnsupportedVersion while share groups are switched off."""
        if self._metadata.image.features.get(SHARE_VERSION, 0) < SHARE_PROTOCOL_SINCE:
            raise UnsupportedVersion(
                f"Share groups are switched off: {SHARE_VERSION} is 0. Raise it to {SHARE_PROTOCOL_SINCE}."
            )

    async def stop(self) -> None:
        """Stop serving. States that are being made are made again by the next coordinator."""
        self.runtime.resign()
        await self._tasks.finish(0)

    def _send(self, shard: Shard[GroupCoordinator], message: object) -> None:
        """Have the states made that a share group needs. There is no other message of the machine."""
        self._tasks.spawn(self._initialize(cast("InitializeStates", message)))

    async def _initialize(self, wanted: InitializeStates) -> None:
        codes = await self.initialize_states(wanted)
        if failed := {code for code in codes.values() if code is not ErrorCode.none}:
            logger.warning(
                "The states of %d partitions of share group %s could not be made, and its members do not get them. "
                "The next heartbeat tries again: %s",
                len(codes),
                wanted.group_id,
                ", ".join(sorted(code.name for code in failed)),
            )

    async def initialize_states(self, wanted: InitializeStates) -> Mapping[StatePartition, ErrorCode]:
        """Have states made, and tell the group's coordinator which were and which were not."""
        codes = await self.persister.initialize(*wanted)
        done, failed = _partitions(codes, made=True), _partitions(codes, made=False)

        def tell(machine: GroupCoordinator, now_ms: int) -> GroupOutcome:
            return machine.shares.initialize_ended(wanted.group_id, done, failed, now_ms)

        with contextlib.suppress(ApiError):  # the next coordinator has them made again
            self.runtime.find(wanted.group_id).decide_event(tell)
        return codes

    def _make_machine(self) -> GroupCoordinator:
        from barnabas.machines.groups.coordinator import GroupCoordinator
        from barnabas.machines.groups.table import GroupTable

        return GroupCoordinator(
            GroupTable(
                new_id=_new_id,
                settings=self._group_settings,
                image=self._metadata.image,
                group_settings=self._settings_of,
            ),
        )

    def _settings_of(self, group_id: str) -> GroupSettings:
        """The broker's settings, with the overrides of the group."""
        own = self._overrides.get(group_id)
        if own is None:
            return self._group_settings
        cached = self._overridden.get(group_id)
        if cached is None or cached[0] is not own or cached[1] is not self._group_settings:
            cached = own, self._group_settings, overridden(self._group_settings, own, self._settings)
            self._overridden[group_id] = cached
        return cached[2]

    def _note_overrides(self, image: ClusterImage, changed: Iterable[ConfigResource]) -> None:
        """Every heartbeat asks for the settings of its group, so those that have some are kept by their ids."""
        for resource in changed:
            if resource.kind == "groups":
                self._overridden.pop(resource.name, None)
                self._overrides.pop(resource.name, None)
                if own := image.config(resource):
                    self._overrides[resource.name] = own

    def _catch_up(self, machine: GroupCoordinator) -> None:
        machine.table.settings = self._group_settings
        machine.table.image = self._metadata.image

    def _on_settings(self, changed: Changed) -> None:
        self._group_settings = group_settings(self._settings)
        for _, machine in self.runtime.machines():
            machine.table.settings = self._group_settings

    def _on_change(self, delta: Delta) -> None:
        if delta.is_whole:
            self._overrides.clear()
        self._note_overrides(delta.after, delta.configs)
        names = {topic.name for topic in (*delta.created, *delta.changed, *delta.deleted)}
        gone = delta.deleted
        for shard, machine in self.runtime.machines():
            machine.table.image = delta.after
            if gone:
                shard.decide_event(lambda machine, now_ms: machine.topics_deleted(gone, now_ms))
            if names:
                shard.decide_event(lambda machine, now_ms: machine.topics_changed(names, now_ms))


def _partitions(codes: Mapping[StatePartition, ErrorCode], *, made: bool) -> dict[UUID, frozenset[int]]:
    """The partitions whose states were made, or those whose were not."""
    found: dict[UUID, set[int]] = {}
    for (topic_id, partition), code in codes.items():
        if (code is ErrorCode.none) is made:
            found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def check_not_deleted(shard: Shard[GroupCoordinator], group_id: str) -> None:
    """Raises CoordinatorLoadInProgress, which is tried again, while a group is being deleted."""
    if shard.machine is not None and group_id in shard.machine.deletions.under_way:
        raise CoordinatorLoadInProgress(f"Group {group_id} is being deleted. Try again.")


def overridden(common: GroupSettings, own: Mapping[str, str], settings: Settings) -> GroupSettings:
    """The settings of one group; an override that cannot be read is ignored."""
    readable = {}
    for name, text in own.items():
        try:
            GROUP_KEYS[name].read(text)
        except (KeyError, InvalidConfig):
            continue
        readable[name] = text
    return replace(
        common,
        consumer_session_timeout_ms=number("consumer.session.timeout.ms", readable, settings),
        consumer_heartbeat_interval_ms=number("consumer.heartbeat.interval.ms", readable, settings),
        consumer_assignment_interval_ms=number("consumer.assignment.interval.ms", readable, settings),
        share_session_timeout_ms=number("share.session.timeout.ms", readable, settings),
        share_heartbeat_interval_ms=number("share.heartbeat.interval.ms", readable, settings),
        share_assignment_interval_ms=number("share.assignment.interval.ms", readable, settings),
    )


def _new_id() -> str:
    return str(uuid.uuid4())


def group_settings(settings: Settings) -> GroupSettings:
    """The broker's settings for groups."""
    number = settings.number
    return GroupSettings(
        min_session_timeout_ms=number("group.min.session.timeout.ms"),
        max_session_timeout_ms=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        max_size=number("group.max.size"),
        consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
        consumer_max_size=number("group.consumer.max.size"),
        consumer_assignors=tuple(settings.items("group.consumer.assignors")),
        consumer_migration_policy=MigrationPolicy(settings.text("group.consumer.migration.policy").lower()),
        consumer_assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
        consumer_regex_refresh_interval_ms=number("group.consumer.regex.refresh.interval.ms"),
        share_session_timeout_ms=number("group.share.session.timeout.ms"),
        share_heartbeat_interval_ms=number("group.share.heartbeat.interval.ms"),
        share_max_size=number("group.share.max.size"),
        share_assignors=tuple(settings.items("group.share.assignors")),
        share_assignment_interval_ms=number("group.share.assignment.interval.ms"),
        share_initialize_retry_interval_ms=number("group.share.initialize.retry.interval.ms"),
        offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
    )
