"""The broker is killed -9 and stopped, again and again, in the middle of transactions: a bank keeps its money.

Tellers move money between accounts, at the same time and in each other's way. A transfer is a transaction: two entries
in the journal, one partition for everyone, and one more in the ledger of each account's branch, another partition; some
are aborted. An auditor follows the journal all the while. Wherever a reader of committed records comes to the end of
what may be read, it has whole transfers: so the sum over all accounts is the same at every such snapshot, and no
account's ledger ever disagrees with the journal for good.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDINGS: Final = ("kill", "stop", "kill", "kill")
TELLERS: Final = 3
ACCOUNTS: Final = 4
FUNDS: Final = 1000
"""What each account begins with."""
JOURNAL: Final = "journal"
LEDGERS: Final = "ledgers"
BRANCHES: Final = 2
PER_LIFE: Final = 15
"""Transfers that each teller makes before the broker's next end, at least."""
SETTINGS: Final = {"transaction.state.log.num.partitions": "2"}


class Entry(NamedTuple):
    """Money that came to an account, or left it."""

    transfer: str
    account: int
    amount: int

    def __str__(self) -> str:
        return f"{self.transfer} {self.account} {self.amount}"

    @classmethod
    def read(cls, value: bytes) -> Entry:
        transfer, account, amount = value.decode().split()
        return cls(transfer, int(account), int(amount))


def book(producer: Producer, entries: list[Entry]) -> None:
    """Write entries to the journal and to the branches' ledgers."""
    for entry in entries:
        producer.produce(JOURNAL, str(entry))
        producer.produce(LEDGERS, str(entry), partition=entry.account % BRANCHES)


def producer_of(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 20_000}
    return Producer({**settings, "linger.ms": 0, "log_level": 0})


class Teller(threading.Thread):
    """Makes transfers until it is told to stop; after a failure it begins anew under its transactional id."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(name=f"teller-{number}", daemon=True)
        self._address = bootstrap
        self._number = number
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        """Transfers whose end was not heard of."""
        self.closing = threading.Event()

    def work(self, count: int) -> None:
        """Wait until it has made so many transfers more."""
        wanted = len(self.committed) + count
        wait_until(lambda: len(self.committed) >= wanted, f"transfers of {self.name}", 120)

    def _transfer(self, number: int) -> list[Entry]:
        source = (self._number + number) % ACCOUNTS
        target = (source + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS
        amount = 1 + number % 9
        name = f"{self.name}-{number}"
        return [Entry(name, source, -amount), Entry(name, target, amount)]

    def run(self) -> None:
        number = 0
        while not self.closing.is_set():
            producer = producer_of(self._address, self.name)
            transfer = ""
            try:
                producer.init_transactions(20)
                while not self.closing.is_set():
                    number += 1
                    entries = self._transfer(number)
                    transfer = entries[0].transfer
                    producer.begin_transaction()
                    book(producer, entries)
                    if number % 4 == 0:
                        producer.flush(20)
                        producer.abort_transaction(20)
                        self.aborted.append(transfer)
                    else:
                        producer.commit_transaction(20)
                        self.committed.append(transfer)
                    transfer = ""
            except (KafkaException, BufferError):
                if transfer:
                    self.unknown.append(transfer)


class Reader:
    """Reads committed entries, and knows where it has come to the end of what may be read."""

    def __init__(self, bootstrap: str, topic: str, partition: int = 0) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "auditor",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, partition, 0)])

    def follow(self, closing: threading.Event) -> Iterator[Entry | None]:
        """Entry after entry; None where nothing more may be read yet."""
        while not closing.is_set():
            message = self.consumer.poll(0.5)
            error = None if message is None else message.error()
            if message is not None and error is None:
                yield Entry.read(message.value() or b"")
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                yield None
        self.consumer.close()

    def everything(self) -> list[Entry]:
        """All entries up to the end."""
        closing = threading.Event()
        found: list[Entry] = []
        for entry in self.follow(closing):
            if entry is None:
                closing.set()
            else:
                found.append(entry)
        return found


class Auditor(threading.Thread):
    """Counts the money wherever the journal ends for the moment."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="auditor", daemon=True)
        self._reader = Reader(bootstrap, JOURNAL)
        self.snapshots = 0
        """How often it has counted, each time with more entries than before."""
        self.wrong: list[str] = []
        self.closing = threading.Event()

    def run(self) -> None:
        balances: Counter[int] = Counter()
        entries = counted = 0
        for entry in self._reader.follow(self.closing):
            if entry is not None:
                balances[entry.account] += entry.amount
                entries += 1
            elif entries > counted:
                counted = entries
                self.snapshots += 1
                if balances.total() != ACCOUNTS * FUNDS:
                    self.wrong.append(f"{balances.total()} after {entries} entries: {dict(balances)}")


def test_the_sum_is_constant_and_no_transfer_is_torn_lost_repeated_or_made_of_nothing(tmp_path: Path) -> None:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    tellers = [Teller(bootstrap, number) for number in range(TELLERS)]
    broker = Barnabas(tmp_path, SETTINGS, port)
    auditor = Auditor(bootstrap)
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for topic, partitions in ((JOURNAL, 1), (LEDGERS, BRANCHES)):
            create(admin, topic, partitions)
        opening = producer_of(bootstrap, "opening")
        opening.init_transactions(20)
        opening.begin_transaction()
        book(opening, [Entry("opening", account, FUNDS) for account in range(ACCOUNTS)])
        opening.commit_transaction(20)
        for worker in (auditor, *tellers):
            worker.start()
        for ending in ENDINGS:
            for teller in tellers:
                teller.work(PER_LIFE)
            if ending == "kill":
                broker.kill()
            else:
                assert broker.stop() == 0, broker.tail()
            broker = Barnabas(tmp_path, SETTINGS, port)
        for teller in tellers:
            teller.closing.set()
        for teller in tellers:
            teller.join(90)
            assert not teller.is_alive()
            producer_of(bootstrap, teller.name).init_transactions(30)
        journal = Reader(bootstrap, JOURNAL).everything()
        ledgers = [entry for branch in range(BRANCHES) for entry in Reader(bootstrap, LEDGERS, branch).everything()]
        auditor.closing.set()
        auditor.join(30)
        assert broker.stop() == 0, broker.tail()
    finally:
        for closing in (auditor.closing, *(teller.closing for teller in tellers)):
            closing.set()
        broker.kill()
    assert auditor.wrong == []
    assert auditor.snapshots > len(ENDINGS)
    assert Counter(journal) == Counter(ledgers), "torn"
    assert max(Counter(journal).values()) == 1, "repeated"
    made = {entry.transfer for entry in journal} - {"opening"}
    committed = {transfer for teller in tellers for transfer in teller.committed}
    aborted = {transfer for teller in tellers for transfer in teller.aborted}
    unknown = {transfer for teller in tellers for transfer in teller.unknown}
    assert committed <= made, "lost"
    assert not aborted & made, "aborted, and read"
    assert made <= committed | unknown, "made of nothing"
