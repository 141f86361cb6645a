"""A client of the simulated cluster: requests over the broker's own channel, and who leads what.

What may pass is tried again by whoever asks (`RETRIABLE`); everything else is an answer like any other.
"""

from __future__ import annotations

import asyncio
import functools
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.net.channel import Channel, ChannelBroken, ChannelOptions
from barnabas.protocol.apis import ApiKey
from tests.support.wire import build

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    Address = tuple[str, int]

SECONDS: Final = 8.0
"""How long an answer is waited for."""
PAUSE: Final = 0.1
SHARE: Final = 2
"""The kind of coordinator that keeps the state of share partitions."""


class Unanswered(Exception):
    """Nobody answered, or nobody is known who could."""


@functools.cache
def _schema(key: int, version: int) -> Any:
    return load_request_schema(key, version)


@functools.cache
def _writer(key: int, version: int) -> Any:
    return entity_writer(load_request_schema(key, version))


@functools.cache
def _reader(key: int, version: int) -> Any:
    return entity_reader(load_response_schema(key, version))


class Client:
    """Connections to the brokers, and what metadata says."""

    def __init__(self, name: str, bootstrap: Sequence[Address], chance: random.Random, *, hasty: bool = False) -> None:
        self.name = name
        self.chance = chance
        self._hasty = hasty
        self._bootstrap = list(bootstrap)
        self._channels: dict[Address, Channel] = {}
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        """The leader epochs of those; metadata of an earlier one is old, whoever tells it."""
        self._coordinators: dict[tuple[int, str], Address] = {}

    # Asking

    async def ask(self, address: Address, key: ApiKey, version: int, seconds: float = SECONDS, **values: Any) -> Any:
        """The answer of one broker; raises Unanswered."""
        buffer = BytesIO()
        schema = _schema(key, version)
        _writer(key, version)(buffer, build(schema, values))
        flexible: bool = schema.__flexible__
        channel = self._channels.get(address)
        if channel is None:
            options = ChannelOptions(client_id=self.name, connect_seconds=3.0, max_response=1 << 24)
            channel = self._channels[address] = Channel(*address, options)
        try:
            frame = await channel.ask(key, version, [buffer.getvalue()], flexible=flexible, seconds=seconds)
        except ChannelBroken as error:
            raise Unanswered(str(error)) from error
        response, _ = _reader(key, version)(bytes(frame), 1 if flexible else 0)
        return response

    async def ask_any(self, key: ApiKey, version: int, **values: Any) -> Any:
        """The answer of any broker."""
        return await self.ask(self.chance.choice(self._bootstrap), key, version, **values)

    async def ask_leader(self, topic: str, partition: int, key: ApiKey, version: int, **values: Any) -> Any:
        """The answer of the broker that leads a partition, as far as is known."""
        address = await self.leader_address(topic, partition)
        try:
            return await self.ask(address, key, version, **values)
        except Unanswered:
            self.forget_leader(topic, partition)
            raise

    async def leader_address(self, topic: str, partition: int) -> Address:
        """Where the broker is that leads a partition, as far as is known; raises Unanswered."""
        leader = self._leaders.get((topic, partition))
        if leader is None or leader not in self._addresses:
            await self.refresh([topic])
            leader = self._leaders.get((topic, partition), -1)
        if leader not in self._addresses:
            raise Unanswered(f"{topic}-{partition} has no leader")
        return self._addresses[leader]

    async def coordinator_address(self, kind: int, name: str) -> Address:
        """Where the coordinator of a group (0), a transaction (1) or a share partition (2) is; raises Unanswered."""
        address = self._coordinators.get((kind, name))
        if address is None:
            version = 4 if kind < SHARE else 6
            found = await self.ask_any(ApiKey.FIND_COORDINATOR, version, key_type=kind, coordinator_keys=[name])
            (one,) = found.coordinators
            if one.error_code.value:
                raise Unanswered(f"no coordinator of {name}: {one.error_code.name}")
            address = self._coordinators[kind, name] = (one.host, one.port)
        return address

    async def ask_coordinator(self, kind: int, name: str, key: ApiKey, version: int, **values: Any) -> Any:
        """The answer of the coordinator of a group, a transaction or a share partition."""
        address = await self.coordinator_address(kind, name)
        try:
            return await self.ask(address, key, version, **values)
        except Unanswered:
            self.forget_coordinator(kind, name)
            raise

    def forget_coordinator(self, kind: int, name: str) -> None:
        """Look for it again."""
        self._coordinators.pop((kind, name), None)

    async def pause(self) -> None:
        """Wait a little before trying again."""
        share = self.chance.random()
        await asyncio.sleep(PAUSE * (share**3 if self._hasty else 0.5 + share))

    # Metadata

    async def refresh(self, topics: Sequence[str]) -> Any:
        """Ask who leads."""
        answer = await self.ask_any(
            ApiKey.METADATA, 9, topics=[{"name": topic} for topic in topics], allow_auto_topic_creation=False
        )
        if answer.brokers:
            self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                key = topic.name, partition.partition_index
                if partition.leader_id >= 0 and partition.leader_epoch >= self._epochs.get(key, -1):
                    self._leaders[key] = partition.leader_id
                    self._epochs[key] = partition.leader_epoch
        return answer

    def leader_of(self, topic: str, partition: int) -> int:
        """Who leads, as far as is known; -1 for nobody."""
        return self._leaders.get((topic, partition), -1)

    def epoch_of(self, topic: str, partition: int) -> int:
        """The leader epoch that requests name, so that a broker which leads no more, or not yet, refuses them."""
        return self._epochs.get((topic, partition), -1)

    def forget_leader(self, topic: str, partition: int) -> None:
        """It leads no more, or cannot be reached."""
        self._leaders.pop((topic, partition), None)
