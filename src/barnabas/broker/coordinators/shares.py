"""The share coordinators of this broker: the machine of share states over partitions of `__share_group_state`.

The machine's modules are loaded with the first partition: a broker without share groups starts without them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.coordinators.runtime import CoordinatorLog, CoordinatorParts, Runtime
from barnabas.model.errors import ApiError, InvalidRequest
from barnabas.model.ids import uuid_from_text
from barnabas.model.internal_topics import SHARE_GROUP_STATE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.settings import Settings
    from barnabas.machines.shares.coordinator import ShareCoordinator, ShareKey, ShareOutcome, StoredState
    from barnabas.metadata.images.cache import Delta

    Answered = StoredState | ApiError
    """What becomes of a request for one share partition."""

logger = logging.getLogger(__name__)


class ShareCoordinators:
    """The share partitions whose state this broker keeps."""

    def __init__(self, parts: CoordinatorParts, settings: Settings) -> None:
        self._metadata = parts.metadata
        self._settings = settings
        log = CoordinatorLog(
            topic=SHARE_GROUP_STATE,
            load_buffer_bytes=settings.number("share.coordinator.load.buffer.size"),
            compression=settings.number("share.coordinator.state.topic.compression.codec"),
        )
        self.runtime: Runtime[ShareCoordinator] = Runtime(log, self._make_machine, parts, send=self._send)
        parts.metadata.subscribe(self._on_change)

    def ask(
        self,
        key: ShareKey,
        decide: Callable[[ShareCoordinator, Call[Answered], int], ShareOutcome],
        *,
        only_reads: bool = False,
    ) -> Answered | asyncio.Future[Answered]:
        """Let the coordinator of a share partition decide; an error is an answer like any other."""
        call: Call[Answered] = Call("", "", 0, _as_it_is)
        try:
            shard = self.runtime.find(key.text)
        except ApiError as error:
            return error
        if only_reads:
            shard.read(decide, call)
        else:
            shard.ask(decide, call)
        return call.result()

    def _make_machine(self) -> ShareCoordinator:
        from barnabas.machines.shares.coordinator import ShareCoordinator
        from barnabas.machines.shares.settings import ShareCoordinatorSettings

        number = self._settings.number
        return ShareCoordinator(
            ShareCoordinatorSettings(
                updates_per_snapshot=number("share.coordinator.snapshot.update.records.per.snapshot"),
                prune_interval_ms=number("share.coordinator.state.topic.prune.interval.ms"),
                cold_snapshot_interval_ms=number("share.coordinator.cold.partition.snapshot.interval.ms"),
            ),
            self._partition_exists,
        )

    def _partition_exists(self, topic_id: UUID, partition: int) -> bool:
        topic = self._metadata.topic_by_id(topic_id)
        return topic is not None and self._metadata.partition(topic.name, partition) is not None

    def _send(self, shard: Shard[ShareCoordinator], message: object) -> None:
        """Delete the records that nobody needs any more. Prune is the only message of the machine."""
        from barnabas.machines.shares.coordinator import Prune

        assert isinstance(message, Prune)
        partition, machine, before = shard.partition, shard.machine, message.before
        if machine is None:
            return
        machine.begin_pruning(partition.log.log_end_offset)
        if before is None or not partition.log.log_start_offset < before <= partition.leader.high_watermark:
            return
        try:
            partition.delete_before(before)
        except ApiError as error:
            logger.warning("Could not delete the records of %s before %d: %s", partition.tp, before, error)
        else:
            logger.info(
                "Deleted the records of %s before offset %d: newer snapshots replace them.", partition.tp, before
            )

    def _on_change(self, delta: Delta) -> None:
        gone = {topic.topic_id for topic in delta.deleted}
        if gone:
            for shard in self.runtime.shards():
                shard.decide_event(lambda machine, now_ms: machine.topics_deleted(gone))


def _as_it_is(error: ApiError) -> ApiError:
    return error


def key_of(text: str) -> ShareKey:
    """The share partition that FindCoordinator names as group:topicId:partition. Raises InvalidRequest."""
    from barnabas.machines.shares.coordinator import ShareKey

    group_id, *rest = text.rsplit(":", 2)
    try:
        topic_id, partition = rest
        key = ShareKey(group_id, uuid_from_text(topic_id), int(partition))
    except ValueError:
        raise InvalidRequest(f"{text!r} is not the key of a share partition: group:topicId:partition.") from None
    if not group_id.strip():
        raise InvalidRequest(f"{text!r} is not the key of a share partition: its group is empty.")
    return key
