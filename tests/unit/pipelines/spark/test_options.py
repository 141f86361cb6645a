"""Options in any case, with the nearest name for a wrong one, and values that mean something."""

from __future__ import annotations

import logging

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.read.options import batch_options, stream_options
from barnabas.pipelines.spark.read.positions import AtMoment, AtMoments, AtOffsets, Edge
from barnabas.pipelines.spark.write.options import sink_options
from barnabas.pipelines.spark.write.sending import RecordSender

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = SERVERS | {"subscribe": "orders"}


def test_names_are_known_in_any_case() -> None:
    options = batch_options({"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "orders", "failondataloss": "False"})
    assert options.client == {"bootstrap.servers": "a:1"}
    assert options.selection.topics == ("orders",)
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribe_pattern", "subscribePattern"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(InvalidOption, match=rf"no option {wrong.lower()}; did you mean {right}\?"):
        batch_options(ORDERS | {wrong: "1"})


def test_a_client_property_without_its_prefix_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"begin with kafka\., as kafka\.fetch\.max\.bytes"):
        batch_options(ORDERS | {"fetch.max.bytes": "1"})


def test_a_topic_that_is_given_as_a_path_is_refused_with_the_option_for_it() -> None:
    with pytest.raises(InvalidOption, match="no option path; topics are named by the option subscribe"):
        batch_options(SERVERS | {"path": "orders"})
    with pytest.raises(InvalidOption, match="no option path; topics are named by the option topic"):
        sink_options(SERVERS | {"path": "orders"})


def test_options_of_spark_itself_are_none_of_our_business() -> None:
    assert stream_options(ORDERS | {"checkpointLocation": "/there"}).selection.topics == ("orders",)


def test_options_that_tune_sparks_own_source_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("kafkaConsumer.pollTimeoutMs", "partition.metadata.cache.ttl.ms"):
        with caplog.at_level(logging.WARNING):
            batch_options(ORDERS | {name: "1000"})
        assert f"{name} has no effect" in caplog.text


def test_options_of_streams_are_warned_of_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    given = ORDERS | {"maxOffsetsPerTrigger": "1000", "progressGroup": "g"}
    stream_options(given)
    assert not caplog.text
    batch_options(given)
    assert "maxOffsetsPerTrigger has no effect in a batch: it is for streams" in caplog.text
    assert "progressGroup has no effect" in caplog.text


def test_a_group_id_has_the_prefix_that_was_asked_for() -> None:
    prefixed = ORDERS | {"groupIdPrefix": "team-a"}
    assert stream_options(prefixed).client["group.id"] == "team-a-source"
    assert batch_options(prefixed | {"kafka.group.id": "mine"}).client["group.id"] == "mine"
    assert "group.id" not in batch_options(ORDERS).client


@pytest.mark.parametrize(
    ("name", "value"),
    [("acks", "1"), ("retries", "0"), ("max.in.flight.requests.per.connection", "6"), ("enable.idempotence", "false")],
)
def test_a_producer_that_may_repeat_records_is_one_for_at_least_once(name: str, value: str) -> None:
    given = SERVERS | {"topic": "t", f"kafka.{name}": value}
    options = sink_options(given)
    with RecordSender(options.client):
        assert options.client[name] == value
    with pytest.raises(InvalidOption, match=f"kafka.{name} is '{value}', with which nothing is written exactly once"):
        sink_options(given | {"deliveryGuarantee": "exactly-once"})
    sink_options(given | {f"kafka.{name}": {"acks": "ALL", "enable.idempotence": "True"}.get(name, "5")})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "orders"}, r"kafka\.bootstrap\.servers is missing"),
        (SERVERS, "subscribe, subscribePattern, assign are missing"),
        (ORDERS | {"assign": '{"orders":[0]}'}, "subscribe, assign are given together"),
        (SERVERS | {"subscribe": " , "}, "subscribe is ',', and should be names of topics"),
        (SERVERS | {"subscribePattern": "("}, "no regular expression"),
        (SERVERS | {"assign": "orders"}, "assign is 'orders', and should be JSON"),
        (SERVERS | {"assign": '{"orders":["0"]}'}, "should be JSON"),
        (SERVERS | {"assign": "{}"}, "should be JSON"),
        (ORDERS | {"startingOffsets": "soon"}, "startingOffsets should be earliest, latest or JSON"),
        (ORDERS | {"startingOffsets": '{"orders":{"0":-3}}'}, "has -3 for orders-0"),
        (ORDERS | {"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "has -1 for orders-0"),
        (ORDERS | {"startingOffsets": '{"orders":3}'}, "instead of an object of partitions"),
        (ORDERS | {"startingTimestamp": "yesterday"}, "should be milliseconds since 1970"),
        (ORDERS | {"startingOffsets": "latest"}, "a batch that begins at the end"),
        (ORDERS | {"startingOffsets": '{"orders":{"0":-1}}'}, "a batch that begins at the end"),
        (ORDERS | {"endingOffsets": "earliest"}, "a batch that ends there"),
        (ORDERS | {"minPartitions": "0"}, "minPartitions is '0', and should be a whole number above 0"),
        (ORDERS | {"includeHeaders": "yes"}, "should be true or false"),
        (ORDERS | {"startingOffsetsByTimestampStrategy": "guess"}, "should be error or latest"),
        (ORDERS | {"maxTriggerDelay": "soon"}, "should be a time like 30s"),
        (ORDERS | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "larger than maxOffsetsPerTrigger"),
    ],
)
def test_values_that_mean_nothing_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch_options(given)


def test_what_to_read() -> None:
    assert batch_options(SERVERS | {"subscribe": " b, a,,b "}).selection.topics == ("b", "a")
    assert batch_options(SERVERS | {"assign": '{"b":[1,0],"a":[2]}'}).selection.assigned == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
    pattern = batch_options(SERVERS | {"subscribePattern": "or.*"}).selection.pattern
    assert pattern is not None
    assert pattern.fullmatch("orders")


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = batch_options(ORDERS), stream_options(ORDERS)
    assert (batch.starting, batch.ending, stream.starting) == (Edge.EARLIEST, Edge.LATEST, Edge.LATEST)


def test_positions_in_all_their_forms() -> None:
    place = TopicPartition("orders", 0)
    assert stream_options(ORDERS | {"startingOffsets": "Earliest"}).starting is Edge.EARLIEST
    assert batch_options(ORDERS | {"startingOffsets": '{"orders":{"0":-2}}'}).starting == AtOffsets({place: -2})
    assert batch_options(ORDERS | {"endingOffsets": '{"orders":{"0":-1}}'}).ending == AtOffsets({place: -1})
    assert batch_options(ORDERS | {"endingTimestamp": "17"}).ending == AtMoment(17)
    by_partition = {"startingOffsetsByTimestamp": '{"orders":{"0":17}}'}
    assert batch_options(ORDERS | by_partition).starting == AtMoments({place: 17})


def test_a_moment_goes_before_moments_and_those_before_offsets() -> None:
    given = ORDERS | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders":{"0":17}}'}
    assert stream_options(given).starting == AtMoments({TopicPartition("orders", 0): 17})
    assert stream_options(given | {"startingTimestamp": "5"}).starting == AtMoment(5)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOption, match="endingOffsets is for batches"):
        stream_options(ORDERS | {"endingOffsets": "latest"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("250ms", 0.25), ("30s", 30), ("15m", 900), ("1 h", 3600)]
)
def test_delays(text: str, seconds: float) -> None:
    assert stream_options(ORDERS | {"maxTriggerDelay": text}).max_delay == seconds
