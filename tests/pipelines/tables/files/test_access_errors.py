"""Tables at an address that does not answer: that is found out when they are opened, and told in one line."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.runner.failures import classify_failure
from barnabas.pipelines.tables.delta.table import DeltaLakeTable
from barnabas.pipelines.tables.errors import TableUnreachable, UnusableTarget
from barnabas.pipelines.tables.files.access_errors import spare_signals, unreachable
from barnabas.pipelines.tables.iceberg.table import IcebergTable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing points to a Hadoop."""
    for name in ("HADOOP_HOME", "HADOOP_CONF_DIR", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)


def test_iceberg_on_hdfs_needs_a_library_of_hadoop(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "hdfs://localhost:1/lake"}
    with pytest.raises(UnusableTarget, match=r"^hdfs://localhost:1/lake/shop/orders .*HADOOP_HOME.*delta") as told:
        IcebergTable("shop.orders", options=catalog)
    assert not classify_failure(told.value).passes


def test_delta_asks_for_no_library_and_says_who_does_not_answer() -> None:
    with socket.socket() as nobody:  # it has a port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        address = f"hdfs://127.0.0.1:{nobody.getsockname()[1]}/orders"
        with pytest.raises(TableUnreachable) as told:
            DeltaLakeTable(address)
    assert str(told.value).startswith(f"{address} cannot be reached: ")
    assert str(told.value).endswith(": Connection refused (os error 111).")
    assert "libhdfs" not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_name_service_has_to_be_in_the_configuration() -> None:
    with pytest.raises(UnusableTarget, match=r"No NameNode hosts found\. What is no HOST:PORT .* HADOOP_CONF_DIR"):
        DeltaLakeTable("hdfs://lake/orders")


@pytest.mark.parametrize(
    ("given", "expected"), [("", "-Xrs"), ("-Xmx256m", "-Xmx256m -Xrs"), ("-Xrs -Xmx256m", "-Xrs -Xmx256m")]
)
def test_a_jvm_in_this_process_leaves_signals_alone(given: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBHDFS_OPTS", given)
    for _ in range(2):
        spare_signals()
        assert os.environ["LIBHDFS_OPTS"] == expected


def test_where_a_library_was_looked_for_is_left_out() -> None:
    error = OSError("Unable to load libjvm\ndlopen(/usr/lib/a.so) failed\ndlopen(/usr/lib/b.so) failed")
    text = str(unreachable("hdfs://host/a", error))
    assert text.startswith("hdfs://host/a cannot be reached: Unable to load libjvm. pyiceberg reaches HDFS by")
    assert "dlopen" not in text
