"""Apache Kafka's Java producer, driven from Python: it alone speaks EndTxn v5, with an epoch for each transaction.

Producers live in a JVM of their own (py4j), which a test may kill as it would kill a client. A producer here has those
methods of librdkafka's that the tests use, and fails with the same exceptions: what the Java client lets one try again
is retriable, what it lets one abort needs an abort, and everything else is its end.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from py4j.java_gateway import GatewayClient, GatewayConnection, GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from tests.support import jars, java
from tests.support.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VERSION: Final = "4.3.0"
_FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ERRORS: Final = "org.apache.kafka.common.errors."
AGAIN: Final = {_ERRORS + "TimeoutException", _ERRORS + "InterruptException"}
"""Of the error itself. As a cause they say why a transaction can only be aborted, however often it is asked again."""
OVER: Final = {
    _ERRORS + "ProducerFencedException",
    _ERRORS + "InvalidProducerEpochException",
    _ERRORS + "UnsupportedVersionException",
    _ERRORS + "AuthorizationException",
    "java.lang.IllegalStateException",
}


class _Client(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """py4j's, which leaves the socket open of a connection that a killed JVM does not take."""

    def _create_connection(self) -> GatewayConnection:
        connection = GatewayConnection(self.gateway_parameters, self.gateway_property)
        try:
            connection.start()
        except BaseException:
            connection.socket.close()
            raise
        return connection


class JavaClients(Process):
    """A JVM with producers in it."""

    def __init__(self, log: Path) -> None:
        classpath = f"{jars.classpath(VERSION)}:{find_jar_path()}"
        words = java.command(VERSION, "py4j.GatewayServer", *_FLAGS, classpath=classpath)
        super().__init__("Java clients", [*words, "0"], log)
        try:
            port = int(self.wait_for_output(r"^(\d+)$")[1])
        except BaseException:
            self.kill()
            raise
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it tells of every connection to a JVM that was killed
        parameters = GatewayParameters(port=port, auto_convert=True)
        self._gateway = JavaGateway(_Client(gateway_parameters=parameters), gateway_parameters=parameters)

    def producer(self, settings: Mapping[str, object]) -> JavaProducer:
        """A producer of strings."""
        return JavaProducer(self._gateway.jvm, settings)


class JavaProducer:
    """One producer, with the methods of librdkafka's."""

    def __init__(self, jvm: Any, settings: Mapping[str, object]) -> None:
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        wanted = {"key.serializer": serializer, "value.serializer": serializer, "max.block.ms": 10_000, **settings}
        self._record = jvm.org.apache.kafka.clients.producer.ProducerRecord
        self._sent: list[tuple[Any, Callable[[KafkaError | None, Any], None] | None]] = []
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer
        self._producer = _called(lambda: producer({key: str(value) for key, value in wanted.items()}))

    def produce(
        self,
        topic: str,
        value: str,
        partition: int = 0,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:
        """Send a record."""
        sent = _called(lambda: self._producer.send(self._record(topic, partition, None, value)))
        self._sent.append((sent, on_delivery))

    def poll(self, timeout: float = 0) -> int:
        """Nothing has to be polled here."""
        return 0

    def flush(self, timeout: float = 0) -> int:
        """Wait for the answers to everything, and tell of them."""
        _called(lambda: self._producer.flush())
        sent, self._sent = self._sent, []
        for future, on_delivery in sent:
            if on_delivery is not None:
                with suppress(KafkaException):
                    on_delivery(None, _called(partial(_Delivered, future)))
        return 0

    def init_transactions(self, timeout: float = 0) -> None:
        """Fence the producer before."""
        _called(lambda: self._producer.initTransactions())

    def begin_transaction(self) -> None:
        """Begin."""
        _called(lambda: self._producer.beginTransaction())

    def commit_transaction(self, timeout: float = 0) -> None:
        """End it so that it counts."""
        _called(lambda: self._producer.commitTransaction())
        self.flush()

    def abort_transaction(self, timeout: float = 0) -> None:
        """End it so that it never was."""
        _called(lambda: self._producer.abortTransaction())
        self._sent.clear()

    def close(self) -> None:
        """End without waiting for anything."""
        with suppress(KafkaException):
            _called(lambda: self._producer.close(self._no_time()))

    def _no_time(self) -> Any:
        return self._producer.getClass().forName("java.time.Duration").getField("ZERO").get(None)


class _Delivered:
    """Where a record came to lie."""

    def __init__(self, future: Any) -> None:
        self._offset = int(future.get().offset())

    def offset(self) -> int:
        return self._offset


def _called(call: Callable[[], Any]) -> Any:
    """What Java gives back, or its exception as librdkafka would raise it."""
    try:
        try:
            return call()
        except Py4JJavaError as failed:
            raise _client_error(failed.java_exception) from failed
    except (Py4JError, OSError) as failed:  # also while it was asked what its exception is
        raise KafkaException(KafkaError(KafkaError._FATAL, f"the JVM is gone: {failed}", fatal=True)) from failed


def _client_error(error: Any) -> KafkaException:
    cause = error.getCause()
    own, *causes = [each.getClass().getName() for each in (error, cause) if each is not None]
    retriable, fatal = own in AGAIN, not OVER.isdisjoint((own, *causes))
    code = KafkaError._FATAL if fatal else KafkaError._FAIL
    needs_abort = not (retriable or fatal)
    return KafkaException(KafkaError(code, str(error), fatal, retriable, needs_abort))
