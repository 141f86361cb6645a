"""Which error of TLS or SASL is told in the end."""

from __future__ import annotations

from confluent_kafka import KafkaError

from barnabas.clients.logins import LoginErrors

FIRST, SECOND = "ssl://localhost:9092/1", "ssl://localhost:9093/2"
REFUSED = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"


def last_error(errors: LoginErrors) -> str | None:
    return None if errors.failure is None else str(errors.failure)


def test_the_last_login_that_failed_is_told_until_a_broker_answers() -> None:
    errors = LoginErrors()
    assert last_error(errors) is None
    errors(KafkaError(KafkaError._SSL, f"{FIRST}: certificate verify failed"))
    errors(KafkaError(KafkaError._AUTHENTICATION, f"{SECOND}: wrong password"))
    assert last_error(errors) == f"{SECOND}: wrong password"
    errors(KafkaError(KafkaError._SSL, f"{FIRST}: certificate has expired"))
    assert last_error(errors) == f"{FIRST}: certificate has expired"
    errors.forget()
    assert last_error(errors) is None


def test_a_broker_that_is_gone_keeps_nobody_out() -> None:
    errors = LoginErrors()
    errors(KafkaError(KafkaError._SSL, f"{FIRST}: handshake failed"))
    errors(KafkaError(KafkaError._TRANSPORT, f"{SECOND}: {REFUSED}"))
    errors(KafkaError(KafkaError._TRANSPORT, f"{FIRST}: handshake failed (after 1ms in state SSL_HANDSHAKE)"))
    errors(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    assert last_error(errors) == f"{FIRST}: handshake failed", "only a connection that fails tells that it is gone"
    errors(KafkaError(KafkaError._TRANSPORT, f"{FIRST}: {REFUSED}"))
    assert last_error(errors) is None
