"""The clients for asyncio: the same names and the same meaning, with `await`.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("greetings", "hello")   # in the buffer
        metadata = await delivery                              # with the broker
    async with AsyncConsumer("localhost:9092", "greetings", group_id="g") as consumer:
        async for record in consumer:
            ...

confluent-kafka has asyncio clients of its own, but its producer takes no headers and its consumer keeps a pool of a
hundred threads. Here a client has one thread, which hands over whole batches: what it costs does not depend on how many
records there are. Nothing blocks the event loop.
"""

from __future__ import annotations

from barnabas.clients.aio.admin import AsyncAdmin
from barnabas.clients.aio.consumer import AsyncConsumer
from barnabas.clients.aio.producer import AsyncDelivery, AsyncProducer
from barnabas.clients.aio.queue import AsyncQueue

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncDelivery", "AsyncProducer", "AsyncQueue"]
