"""`python -m tests.support.earlier.write FOLDER`: writes what `tests.support.earlier` keeps, with the tree it runs in.

Only programs and clients that users have are used, so that it runs in any tree: `barnabas start`, `barnabas load`,
confluent-kafka and Spark's streams.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from subprocess import run
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.pipelines import spark_session
from tests.support.brokers import Barnabas

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOADED = ("parquet", "delta")


def main(folder: Path) -> None:
    """Write the directory, the tables, the checkpoint, and what is in them."""
    broker = Barnabas(folder)
    try:
        known = _fill(broker.bootstrap)
        known["query"] = _stream(broker.bootstrap, folder)
        for form in LOADED:
            _load(broker.bootstrap, folder / form, form)
    finally:
        broker.stop()
    (folder / "known.json").write_text(json.dumps(known))
    with tarfile.open(folder / "written.tar.gz", "w:gz") as archive:
        for name in ("data", "data.metadata", "checkpoint", *LOADED, "known.json"):
            for path in sorted(folder.glob(f"{name}*")):
                if path.name != "written.tar.gz":
                    archive.add(path, path.name, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith((".lock", ".pid", ".crc")) else entry


def _fill(bootstrap: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("orders", 2, 1, config={"retention.ms": "-1"}),
        NewTopic("settings", 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"}),
        NewTopic("payments", 1, 1),
        NewTopic("copies", 1, 1),
        NewTopic("gone", 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    for done in admin.delete_topics(["gone"]).values():
        done.result(30)
    set_default = ["--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.cleaner.threads=2"]
    _barnabas("configs", "--bootstrap-server", bootstrap, *set_default)
    orders = [_orders(bootstrap, partition) for partition in range(2)]
    settings = {f"key{number % 7}": str(number) for number in range(70)}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(70):
        producer.produce("settings", str(number), f"key{number % 7}")
    producer.produce("settings", None, "key0")
    producer.flush(30)
    del settings["key0"]
    payments = _transactions(bootstrap)
    return {
        "orders": orders,
        "settings": settings,
        "payments": payments,
        "committed": {
            "readers": _commit(bootstrap, "readers", "classic", 7),
            "modern": _commit(bootstrap, "modern", "consumer", 11),
        },
    }


def _orders(bootstrap: str, partition: int) -> list[str]:
    values = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec, "enable.idempotence": True})
        for number in range(10):
            value = json.dumps({"codec": codec, "number": number, "partition": partition})
            producer.produce("orders", value, partition=partition, headers={"codec": codec.encode()})
            values.append(value)
        producer.flush(30)
    return values


def _transactions(bootstrap: str) -> list[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "cashier"})
    producer.init_transactions(30)
    kept = []
    for number in range(6):
        producer.begin_transaction()
        producer.produce("payments", str(number))
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept.append(str(number))
    return kept


def _commit(bootstrap: str, group: str, protocol: str, offset: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("orders", 1, offset)], asynchronous=False)
    consumer.close()
    return offset


def _stream(bootstrap: str, folder: Path) -> str:
    spark = spark_session("earlier", master="local[1]")
    source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    rows = source.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    writer = rows.select("value").writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", "copies").option("deliveryGuarantee", "exactly-once")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    return str(query.id)


def _load(bootstrap: str, table: Path, form: str) -> None:
    where = ["--bootstrap-server", bootstrap, "--to", str(table), "--format", form]
    _barnabas("load", "orders", *where, "--decode", "json", "--name", "earlier")


def _barnabas(*words: str) -> None:
    run([sys.executable, "-m", "barnabas.cli.main", *words], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
