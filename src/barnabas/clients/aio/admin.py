"""The admin client for asyncio: each call of the other one, in a thread."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.clients.admin.admin import DEFAULT_TIMEOUT, Admin
from barnabas.clients.config import DEFAULT_BOOTSTRAP_SERVERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from barnabas.clients.admin.topics import ConfigValue, NewTopic, TopicInfo
    from barnabas.model.ids import TopicPartition

__all__ = ["AsyncAdmin"]

R = TypeVar("R")


class AsyncAdmin:
    """A connection to a cluster for administrative work. Use it in an `async with`."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        config: Mapping[str, Any] | None = None,
        **kafka_properties: Any,
    ) -> None:
        """Like `Admin`, but the connection is made, and may fail, at the first call or when the block is entered."""
        self._open = partial(Admin, bootstrap_servers, timeout=timeout, config=config, **kafka_properties)
        self._opened: Admin | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._admin()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End; closing twice does nothing."""
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    async def topic_names(self) -> list[str]:
        """All topics, internal ones too, sorted."""
        return await self._call(Admin.topic_names)

    async def topics(self) -> list[TopicInfo]:
        """All topics with their partitions, sorted by name; their ids are left out (`describe_topics` has them)."""
        return await self._call(Admin.topics)

    async def live_brokers(self) -> frozenset[int]:
        """Ids of the brokers that are up."""
        return await self._call(Admin.live_brokers)

    async def describe_topics(self, names: str | Iterable[str]) -> list[TopicInfo]:
        """The named topics, in the order of the names."""
        return await self._call(Admin.describe_topics, names)

    async def topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        """Every setting of each topic, in the order in which the broker tells them."""
        return await self._call(Admin.topic_configs, names)

    async def create_topic(
        self,
        topic: NewTopic | str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic; returns when the cluster has it. See `Admin.create_topic`."""
        await self._call(Admin.create_topic, topic, partitions, replication_factor, configs=configs, exist_ok=exist_ok)

    async def create_partitions(self, topic: str, total: int, assignment: Sequence[Sequence[int]] = ()) -> None:
        """Grow a topic to `total` partitions; `assignment` names the replicas of each new one."""
        await self._call(Admin.create_partitions, topic, total, assignment)

    async def alter_topic_config(self, topic: str, *, set_: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        """Set some of a topic's settings and return others to their default; the rest stays."""
        await self._call(Admin.alter_topic_config, topic, set_=set_, delete=delete)

    async def delete_topics(self, names: str | Iterable[str]) -> None:
        """Delete topics and all they hold; returns when the cluster no longer shows them."""
        await self._call(Admin.delete_topics, names)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises RequestRefused if there is no such topic."""
        return await self._call(Admin.partitions, topic)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._call(Admin.beginning_offsets, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return await self._call(Admin.end_offsets, partitions)

    async def offsets_at(
        self, when: datetime | int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment (a datetime, or milliseconds); None where nothing is that young."""
        return await self._call(Admin.offsets_at, when, partitions)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets (-1: everything); returns where each partition begins now."""
        return await self._call(Admin.delete_records, before)

    async def _admin(self) -> Admin:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._open)
            return self._opened

    async def _call(self, method: Callable[..., R], *arguments: Any, **options: Any) -> R:
        admin = await self._admin()
        return await asyncio.to_thread(method, admin, *arguments, **options)
