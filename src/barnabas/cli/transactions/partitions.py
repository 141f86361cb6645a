"""The partition that a command of `barnabas transactions` is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.common.connection import ConnectionOptions
from barnabas.cli.common.help import F, option
from barnabas.cli.common.values.numbers import INT32

if TYPE_CHECKING:
    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, kw_only=True)
class PartitionOptions(ConnectionOptions):
    """`--topic` and `--partition`."""

    topic: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        from barnabas.model.ids import TopicPartition

        return TopicPartition(self.topic, self.partition)


def partition_options(command: F) -> F:
    """`--topic` and `--partition`, both needed."""
    command = option("--partition", type=INT32, required=True, metavar="N", help="The partition of the topic.")(command)
    return option("--topic", required=True, metavar="TOPIC", help="The topic.")(command)
