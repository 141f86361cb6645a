"""Why a transaction has to be aborted, as librdkafka tells it and as the program gets it."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from barnabas.cli.common.remedies import with_remedy
from barnabas.clients.errors import TransactionAborted
from barnabas.clients.producer.transactions import ProducerTransactions


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Write --topic NAME"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Read --group NAME"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write --transactional-id x"),
    ],
)
def test_the_permission_that_lacks_is_in_the_remedy(code: int, rule: str) -> None:
    transactions = ProducerTransactions(confluent_kafka, None, "x")
    error = transactions._translate(KafkaError(code, "forbidden", txn_requires_abort=True), "commit the transaction")
    assert isinstance(error, TransactionAborted)
    assert str(error) == "commit the transaction: forbidden"
    assert with_remedy("", error.remedy).endswith(
        f"`barnabas acls --add --allow-principal User:NAME --operation {rule}`."
    )
