"""What users' programs, files and checkpoints name stays where it was, wherever the code behind it goes."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
NAMES: Final = {
    "barnabas": "Admin AsyncAdmin AsyncConsumer AsyncProducer AsyncQueue Consumer ConsumerRecord Producer Queue "
    "QueueMessage RecordMetadata TopicPartition __version__",
    "barnabas.clients": "BYTES JSON STRING Admin AsyncAdmin AsyncConsumer AsyncDelivery AsyncProducer Avro Consumer "
    "ConsumerRecord Delivery NewTopic Producer Protobuf RecordMetadata TopicPartition at_least_once at_most_once "
    "stored_with_result",
    "barnabas.clients.admin": "Admin NewTopic",
    "barnabas.clients.aio": "AsyncAdmin AsyncConsumer AsyncDelivery AsyncProducer",
    "barnabas.clients.consumer": "Consumer",
    "barnabas.clients.errors": "LibraryMissing InvalidClientConfig BrokerUnreachable AddressInvalid AddressUnknown "
    "BrokerSilent LoginFailed RequestRefused ClientFailed ClientClosed SerializationFailed DeserializationFailed "
    "BufferFull NotDelivered TransactionAborted ProducerFenced",
    "barnabas.clients.partitioners": "RoundRobin at_random key_hash",
    "barnabas.clients.producer": "Producer",
    "barnabas.clients.records": "ConsumerRecord RecordMetadata TopicPartition",
    "barnabas.clients.semantics": "at_least_once at_most_once stored_with_result",
    "barnabas.clients.serializers": "BYTES JSON STRING Avro Protobuf",
    "barnabas.pipelines": "PipelineError load register spark_session",
    "barnabas.pipelines.errors": "PipelineError InvalidOption NoPosition TopicMissing OffsetOutOfRange DataLost "
    "ReadStalled SinkRefused MarkerRefused ReplayChecked NotWritten SparkNotStarted",
    "barnabas.pipelines.source": "BarnabasSource",
    "barnabas.pipelines.spec": "FileSource FunctionStep Pipeline Place Problem Sink Source SpecError SqlStep Step "
    "TableSink TopicSink TopicSource Watermark load_pipelines",
    "barnabas.pipelines.tables.errors": "TableError ForeignTable TopicReplaced Fenced SchemaConflict FilesGone "
    "Overtaken UnusableTarget TableUnreachable",
    "barnabas.testing": "Broker BrokerFailed Cluster Fault Faults InvalidFault Kafka KafkaCluster",
    "barnabas.testing.broker": "Broker BrokerFailed",
    "barnabas.testing.cluster": "Cluster",
    "barnabas.testing.plugin": "kafka",
}
IMPORT: Final = re.compile(r"^\s*from (barnabas[\w.]*) import ([\w, ]+)", re.MULTILINE)


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_can_be_imported(module: str) -> None:
    for name in NAMES[module].split():
        assert getattr(import_module(module), name) is not None, name


def test_every_import_in_the_guides_works() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py")]
    found = [match for page in pages for match in IMPORT.findall(page.read_text("utf-8"))]
    assert len(found) > 20
    for module, names in found:
        for name in names.split(","):
            assert hasattr(import_module(module), name.split()[0]), f"{module} has no {name}"


def test_programs_and_plugins_keep_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(project["scripts"]) == {"barnabas", "barnabas-spark-python"}
    assert set(project["entry-points"]["pytest11"]) == {"barnabas"}
    for place in [*project["scripts"].values(), *project["entry-points"]["pytest11"].values()]:
        module, _, function = place.partition(":")
        assert hasattr(import_module(module), function or "__name__"), place


def test_spark_knows_the_source_by_its_name() -> None:
    assert import_module("barnabas.pipelines.source").BarnabasSource.name() == "barnabas"


def test_loggers_of_clients_and_pipelines_keep_their_names() -> None:
    assert import_module("barnabas.clients.config").log.name == "barnabas.clients"
    assert import_module("barnabas.pipelines.loading.job").log.name == "barnabas.pipelines"
