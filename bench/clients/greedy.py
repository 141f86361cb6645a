"""`python -m bench.clients.greedy PORT TOPIC`: a producer that sends as much as it can, until it is ended.

It says "ready" on its standard output as soon as the broker has throttled it.
"""

from __future__ import annotations

import json
import sys
from typing import Final

from confluent_kafka import Producer
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.static.primitive import f64

from bench.clients import wire

CLIENT_ID: Final = "greedy"
_VALUE: Final = b"x" * 1024


def set_quota(port: int, bytes_per_second: int) -> None:
    """Let producers of this client id send so much."""
    entity = EntityData(entity_type="client-id", entity_name=CLIENT_ID)
    op = OpData(key="producer_byte_rate", value=f64(float(bytes_per_second)), remove=False)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=(entity,), ops=(op,)),), validate_only=False)
    with wire.connect(port) as connection:
        connection.sendall(wire.frame(request))
        [entry] = wire.parse(AlterClientQuotasResponse, wire.receive(connection)).entries
    if entry.error_code:
        raise RuntimeError(f"the quota was refused: {entry}")


def main() -> None:
    """Send for ever."""
    told: list[str] = []

    def on_stats(text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        if not told and any(broker.get("throttle", {}).get("max", 0) > 0 for broker in brokers):
            told.append("ready")
            print("ready", flush=True)

    settings = {
        "bootstrap.servers": f"127.0.0.1:{sys.argv[1]}",
        "client.id": CLIENT_ID,
        "linger.ms": 5,
        "statistics.interval.ms": 200,
        "stats_cb": on_stats,
        "log_level": 0,
    }
    producer = Producer(settings)
    while True:
        try:
            producer.produce(sys.argv[2], _VALUE)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)


if __name__ == "__main__":
    main()
