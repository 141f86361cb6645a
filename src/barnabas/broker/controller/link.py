"""The link to the controller, wherever it is: in this process, or in another broker.

While a controller is elected nobody can answer. A request here waits a little for the election to end, so that its
client need not know of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.replication.isr_manager import IsrDecision
from barnabas.machines.controller.image import PartitionImage, TopicImage
from barnabas.machines.controller.requests import AlterIsr, IsrChange, LogDirFailed, ShutDown
from barnabas.model.errors import ApiError, ErrorCode, NotController, RequestTimedOut
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kio.schema.envelope.v0.request import EnvelopeRequest

    from barnabas.broker.controller.membership import ClusterMembership
    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.replication.isr_manager import IsrProposal
    from barnabas.broker.settings import Settings
    from barnabas.machines.controller.image import PartitionKey
    from barnabas.machines.controller.requests import TopicToCreate
    from barnabas.metadata.images.cache import Delta, MetadataCache

logger = logging.getLogger(__name__)

_ELECTION_SECONDS: Final = 5.0
"""Seconds to wait for a controller to be elected."""
_RETRY: Final = 0.05


class ControllerLink:
    """Sends requests to the controller."""

    def __init__(
        self, broker_id: int, membership: ClusterMembership, peers: Peers, metadata: MetadataCache, settings: Settings
    ) -> None:
        self._broker_id = broker_id
        self._membership = membership
        self._controller = membership.controller
        self._peers = peers
        self._metadata = metadata
        self._settings = settings
        self._changed = asyncio.Event()
        metadata.subscribe(self._on_change)

    @property
    def _seconds(self) -> float:
        return self._settings.number("controller.socket.timeout.ms") / 1000

    def _remote_controller(self) -> int:
        """The controller's id. Raises NotController when no other broker is known to be the controller."""
        controller_id = self._metadata.image.controller_id
        if controller_id in (-1, self._broker_id):
            raise NotController("No other broker is the controller now. Try again.")
        return controller_id

    # In-sync replicas

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        """Propose ISRs; gives the decision on each. Raises NotController, RequestTimedOut, ChannelBroken."""
        if not self._controller.is_active:
            return await self._alter_isr_remotely(proposals)
        changes = [IsrChange(*proposal) for proposal in proposals]
        answers = await self._controller.decide(AlterIsr(self._broker_id, self._membership.broker_epoch, changes))
        return [_decision(answers[each.topic_id, each.partition]) for each in proposals]

    async def _alter_isr_remotely(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        from kio.schema.alter_partition.v3 import request as message
        from kio.schema.alter_partition.v3.response import AlterPartitionResponse
        from kio.schema.types import BrokerId
        from kio.static.primitive import i32, i64

        topics: dict[Any, list[message.PartitionData]] = {}
        for proposal in proposals:
            topics.setdefault(proposal.topic_id, []).append(
                message.PartitionData(
                    partition_index=i32(proposal.partition),
                    leader_epoch=i32(proposal.leader_epoch),
                    partition_epoch=i32(proposal.partition_epoch),
                    new_isr_with_epochs=tuple(
                        message.BrokerState(broker_id=BrokerId(replica), broker_epoch=i64(epoch))
                        for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ),
                )
            )
        response = await self._peers.ask(
            self._remote_controller(),
            message.AlterPartitionRequest(
                broker_id=BrokerId(self._broker_id),
                broker_epoch=i64(self._membership.broker_epoch),
                topics=tuple(
                    message.TopicData(topic_id=topic_id, partitions=tuple(partitions))
                    for topic_id, partitions in topics.items()
                ),
            ),
            AlterPartitionResponse,
            seconds=self._seconds,
            purpose="in-sync",
        )
        if response.error_code is not ErrorCode.none:
            raise _refusal(response.error_code)
        found = {
            (topic.topic_id, each.partition_index): _refusal(each.error_code)
            if each.error_code is not ErrorCode.none
            else IsrDecision(tuple(each.isr), each.partition_epoch)
            for topic in response.topics
            for each in topic.partitions
        }
        return [found[each.topic_id, each.partition] for each in proposals]

    # Topics that brokers themselves need

    async def create_topics(self, topics: Sequence[TopicToCreate]) -> dict[str, TopicImage | ApiError]:
        """Create topics; gives them as this broker then knows them. Raises NotController, RequestTimedOut."""
        if self._controller.is_active:
            return await self._controller.create_topics(topics)
        return await self._create_topics_remotely(topics)

    async def _create_topics_remotely(self, topics: Sequence[TopicToCreate]) -> dict[str, TopicImage | ApiError]:
        from kio.schema.create_topics.v7 import request as message
        from kio.schema.create_topics.v7.response import CreateTopicsResponse
        from kio.schema.types import TopicName
        from kio.static.primitive import i16, i32, i32Timedelta

        request = message.CreateTopicsRequest(
            topics=tuple(
                message.CreatableTopic(
                    name=TopicName(topic.name),
                    num_partitions=i32(topic.partitions),
                    replication_factor=i16(topic.replication_factor),
                    assignments=(),
                    configs=tuple(
                        message.CreatableTopicConfig(name=name, value=text) for name, text in topic.configs.items()
                    ),
                )
                for topic in topics
            ),
            timeout=i32Timedelta.parse(_timedelta(self._seconds)),
            validate_only=False,
        )
        response = await self._ask_until_answered(request, CreateTopicsResponse)
        errors: dict[str, TopicImage | ApiError] = {
            str(each.name): _refusal(each.error_code, each.error_message)
            for each in response.topics
            if each.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists)
        }
        await self._wait_for_topics([topic.name for topic in topics if topic.name not in errors])
        image = self._metadata.image
        missing = RequestTimedOut("The topic was created, but this broker does not know it yet. Try again.")
        return errors | {
            topic.name: image.topics.get(topic.name, missing) for topic in topics if topic.name not in errors
        }

    async def _ask_until_answered(self, request: Any, response_class: type) -> Any:
        """Send a request until a controller answers it, at most for _ELECTION_SECONDS seconds."""
        deadline = asyncio.get_running_loop().time() + _ELECTION_SECONDS
        while True:
            try:
                response = await self._peers.ask(
                    self._remote_controller(), request, response_class, seconds=self._seconds, purpose="forwarded"
                )
                if not _says_not_controller(response):
                    return response
                raise NotController("The controller has just changed.")
            except (ChannelBroken, NotController) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise RequestTimedOut(f"The controller cannot be reached: {error}") from error
            await asyncio.sleep(_RETRY)

    async def _wait_for_topics(self, names: Sequence[str]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ELECTION_SECONDS):
                while not all(name in self._metadata.image.topics for name in names):
                    await self._changed.wait()

    def _on_change(self, delta: Delta) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Stopping

    async def shut_down(self) -> int:
        """Move this broker's leadership to others; gives how many partitions it still leads. Raises BarnabasError."""
        if self._controller.is_active:
            answers = await self._controller.decide(ShutDown(self._broker_id, self._membership.broker_epoch))
            remaining = answers[self._broker_id]
            if isinstance(remaining, ApiError):
                raise remaining
            await self._controller.delivered()
            return len(remaining) if isinstance(remaining, tuple) else 0
        from kio.static.primitive import i32, i64

        from barnabas.protocol.messages import inter_broker

        response = await self._peers.ask(
            self._remote_controller(),
            inter_broker.ControlledShutdownRequest(
                broker_id=i32(self._broker_id), broker_epoch=i64(self._membership.broker_epoch)
            ),
            inter_broker.ControlledShutdownResponse,
            seconds=self._seconds,
        )
        if response.error_code is not ErrorCode.none:
            raise _refusal(response.error_code)
        return len(response.remaining_partitions)

    # Disks

    async def log_dir_failed(self, partitions: Collection[PartitionKey]) -> None:
        """Report that this broker can use its replicas of all partitions but these. Raises BarnabasError."""
        if self._controller.is_active:
            await self._controller.decide(LogDirFailed(self._broker_id, sorted(partitions), is_all=True))
            return
        from kio.static.primitive import i32, i64

        from barnabas.protocol.messages import inter_broker

        topics: dict[str, list[i32]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(i32(index))
        response = await self._peers.ask(
            self._remote_controller(),
            inter_broker.FailedReplicasRequest(
                broker_id=i32(self._broker_id),
                broker_epoch=i64(self._membership.broker_epoch),
                topics=tuple(
                    inter_broker.FailedReplicasTopic(topic_name=topic, partitions=tuple(indexes))
                    for topic, indexes in topics.items()
                ),
            ),
            inter_broker.FailedReplicasResponse,
            seconds=self._seconds,
        )
        if response.error_code is not ErrorCode.none:
            raise _refusal(response.error_code)

    # What clients ask

    async def forward(self, envelope: EnvelopeRequest) -> bytes | None:
        """Forward a client's request to the controller; None if this broker itself became the controller meanwhile.

        Gives the response with its header. Raises NotController, ChannelBroken, and what the controller refuses with.
        """
        from kio.schema.envelope.v0.response import EnvelopeResponse

        deadline = asyncio.get_running_loop().time() + _ELECTION_SECONDS
        while not self._controller.is_active:
            try:
                response = await self._peers.ask(
                    self._remote_controller(), envelope, EnvelopeResponse, seconds=self._seconds, purpose="forwarded"
                )
                if response.error_code is ErrorCode.not_controller:
                    raise NotController("The controller has just changed.")
                if response.error_code is not ErrorCode.none or response.response_data is None:
                    raise _refusal(response.error_code)
                data: bytes = response.response_data
                return data
            except (ChannelBroken, NotController):
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_RETRY)
        return None


def _timedelta(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


def _says_not_controller(response: Any) -> bool:
    return any(each.error_code is ErrorCode.not_controller for each in response.topics)


class Refused(ApiError):
    """What the controller answered, with its code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # the one class whose code is not known before


def _refusal(code: ErrorCode, message: str | None = None) -> ApiError:
    return Refused(code, message or f"The controller answered {code.name}.")


def _decision(answer: object) -> IsrDecision | ApiError:
    if isinstance(answer, PartitionImage):
        return IsrDecision(answer.isr, answer.partition_epoch)
    assert isinstance(answer, ApiError)
    return answer
