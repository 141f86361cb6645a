from __future__ import annotations

import fcntl
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.storage.cleaner.report import LastCleaning, PartitionReport, write_report
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition: two batches, three records."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    two = [Record(0, 0, b"k", b"first"), Record(1, 5, None, b"second")]
    batches = [
        build_batch(two, base_offset=0, base_timestamp=1000, leader_epoch=0),
        build_batch([Record(0, 0, b"k", None)], base_offset=2, base_timestamp=2000, leader_epoch=0),
    ]
    (partition / "00000000000000000000.log").write_bytes(b"".join(batches))
    (partition / "00000000000000000000.index").touch()
    (partition / "00000000000000000000.timeindex").touch()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return tmp_path


def damage(data: Path) -> None:
    file = data / "orders-0" / "00000000000000000000.log"
    contents = bytearray(file.read_bytes())
    contents[70] ^= 1
    file.write_bytes(contents)


class TestDump:
    def test_batches(self, run: Run, data: Path) -> None:
        file = data / "orders-0" / "00000000000000000000.log"
        result = run("log", "dump", file)
        assert (result.exit_code, result.stderr) == (0, "")
        dumping, start, first, second = result.stdout.splitlines()
        assert dumping == f"Dumping {file}"
        assert start == "Log starting offset: 0"
        assert first.startswith("baseOffset: 0 lastOffset: 1 count: 2 ")
        assert second.startswith("baseOffset: 2 lastOffset: 2 count: 1 ")

    def test_records_and_data(self, run: Run, data: Path) -> None:
        file = data / "orders-0" / "00000000000000000000.log"
        deep = [line for line in run("log", "dump", "--deep-iteration", file).stdout.splitlines() if line[0] == "|"]
        assert len(deep) == 3
        assert not any("second" in line for line in deep)
        shown = run("log", "dump", "--print-data-log", file).stdout
        assert "payload: second" in shown

    def test_files_by_commas_as_kafkas_tool_has_it(self, run: Run, data: Path) -> None:
        files = [data / "orders-0" / name for name in ("00000000000000000000.log", "leader-epoch-checkpoint")]
        shown = run("log", "dump", "--files", ",".join(map(str, files))).stdout
        assert shown == run("log", "dump", *files).stdout
        assert [line for line in shown.splitlines() if line.startswith("Dumping")] == [f"Dumping {f}" for f in files]

    def test_no_file_is_wrong_usage(self, run: Run, tmp_path: Path) -> None:
        assert "Name at least one FILE." in run("log", "dump").stderr
        assert run("log", "dump", tmp_path / "nowhere.log").exit_code == 2

    def test_a_listed_file_that_is_missing_is_told_in_one_line(self, run: Run, tmp_path: Path) -> None:
        result = run("log", "dump", "--files", tmp_path / "nowhere.log")
        assert result.exit_code == 1
        assert result.stderr == f"Error: {tmp_path}/nowhere.log: No such file or directory\n"


class TestCheck:
    def test_a_sound_directory(self, run: Run, data: Path) -> None:
        result = run("log", "check", data)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith(f"{data}: 1 partitions, 1 segments, 2 batches, 3 records, ")
        assert result.stdout.endswith(": 0 errors, 0 warnings\n")

    def test_damage_is_told_with_its_place_and_an_exit_code(self, run: Run, data: Path) -> None:
        damage(data)
        result = run("log", "check", data)
        assert result.exit_code == 1
        finding, summary = result.stdout.splitlines()
        assert finding == f"error: {data}/orders-0/00000000000000000000.log at byte 0: the CRC-32C does not match"
        assert summary.endswith(": 1 errors, 0 warnings")

    def test_one_sound_directory_does_not_excuse_another(self, run: Run, data: Path, tmp_path: Path) -> None:
        damage(data)
        empty = tmp_path / "empty"
        empty.mkdir()
        assert run("log", "check", data / "orders-0", empty).exit_code == 1

    def test_json(self, run: Run, data: Path) -> None:
        damage(data)
        result = run("log", "check", data, "--json")
        assert result.exit_code == 1
        report = json.loads(result.stdout)
        assert (report["errors"], report["batches"], report["records"]) == (1, 2, 3)
        assert report["findings"] == [
            {
                "severity": "error",
                "path": f"{data}/orders-0/00000000000000000000.log",
                "position": 0,
                "what": "the CRC-32C does not match",
            }
        ]

    def test_a_running_broker_is_remarked_and_what_it_writes_at_its_end_is_not_missed(
        self, run: Run, data: Path
    ) -> None:
        (data / "orders-0" / "leader-epoch-checkpoint").unlink()
        (data / "payments-0").mkdir()
        shutil.copy(data / "orders-0" / "partition.metadata", data / "payments-0")
        assert run("log", "check", data).stdout.endswith(": 0 errors, 1 warnings\n")
        with (data / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = run("log", "check", data)
        assert result.exit_code == 0
        assert result.stderr.startswith(f"A broker is running on {data}: ")
        assert result.stdout.endswith(": 0 errors, 0 warnings\n")

    def test_a_missing_directory_is_wrong_usage(self, run: Run, tmp_path: Path) -> None:
        assert run("log", "check", tmp_path / "nowhere").exit_code == 2


class TestStrays:
    """Two topics of one name, set aside one after the other, and one of another name."""

    @pytest.fixture
    def strays(self, data: Path) -> list[Path]:
        names = ("orders-0.0123456789abcdef0123456789abcdef", "orders-0.fedcba98", "payments-1." + 32 * "a")
        for name in names:
            shutil.copytree(data / "orders-0", data / f"{name}-stray")
        (data / f"{names[2]}-stray" / "partition.metadata").unlink()
        return [data / f"{names[0]}-stray", data / f"{names[2]}-stray"]

    def test_they_are_listed(self, run: Run, data: Path, strays: list[Path]) -> None:
        listed = json.loads(run("log", "strays", data, "--json").stdout)
        assert [(each["path"], each["topic"], each["partition"], each["topicId"]) for each in listed] == [
            (str(strays[0]), "orders", 0, "AAAAAAAAAAAAAAAAAAAAAg"),
            (str(strays[1]), "payments", 1, "-"),
        ]
        header, first, _ = run("log", "strays", data).stdout.splitlines()
        assert header == "PATH\tTOPIC\tPARTITION\tTOPIC-ID\tBYTES"
        assert first.startswith(f"{strays[0]}\torders\t0\tAAAAAAAAAAAAAAAAAAAAAg\t")
        assert all(path.exists() for path in strays)

    def test_the_check_is_content_with_them(self, run: Run, data: Path, strays: list[Path]) -> None:
        assert run("log", "check", data).stdout.endswith(": 0 errors, 0 warnings\n")

    def test_they_are_removed_after_a_question(self, run: Run, data: Path, strays: list[Path]) -> None:
        result = run("log", "strays", data, "--remove", input="n\n")
        assert result.exit_code == 1
        assert "Remove these 2 logs" in result.stderr
        assert all(path.exists() for path in strays)
        assert run("log", "strays", data, "--remove", input="y\n").exit_code == 0
        assert not any(path.exists() for path in strays)
        assert (data / "orders-0").exists()

    def test_those_of_one_topic_are_removed_without_one(self, run: Run, data: Path, strays: list[Path]) -> None:
        result = run("log", "strays", data, "--topic", "orders", "--remove", "--yes")
        assert result.exit_code == 0
        assert result.stderr.startswith("Removed 1 logs with ")
        assert [path.exists() for path in strays] == [False, True]

    def test_of_one_that_is_a_link_the_link_is_removed(
        self, run: Run, data: Path, strays: list[Path], tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        strays[0].rename(elsewhere)
        strays[0].symlink_to(elsewhere)
        assert run("log", "strays", data, "--remove", "--yes").exit_code == 0
        assert not any(path.is_symlink() or path in strays for path in data.iterdir())
        assert any(elsewhere.iterdir())

    def test_where_nothing_is_set_aside(self, run: Run, data: Path) -> None:
        result = run("log", "strays", data)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing is set aside.\n")
        assert run("log", "strays", data, "--yes").exit_code == 2


class TestCleaner:
    @pytest.fixture
    def cleaned(self, data: Path) -> Path:
        """The same, cleaned up to offset 2, and a partition that cannot be cleaned."""
        (data / "orders-0" / "00000000000000000003.log").touch()
        (data / "bad-0").mkdir()
        (data / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 2\n")
        last = LastCleaning(
            time_ms=1_700_000_000_000,
            seconds=1.5,
            first_dirty=0,
            cleaned_to=2,
            keys=1,
            records_in=9,
            records_out=3,
            bytes_in=900,
            bytes_out=300,
        )
        reports = {
            "orders-0": PartitionReport(cleanings=4, last=last),
            "bad-0": PartitionReport(uncleanable="the CRC of a batch is wrong"),
            "gone-0": PartitionReport(cleanings=1, last=last),
        }
        write_report(FileSystem(), str(data), reports)
        return data

    def test_plain_lines(self, run: Run, cleaned: Path) -> None:
        result = run("log", "cleaner", cleaned)
        assert (result.exit_code, result.stderr) == (0, "")
        head, bad, orders = (line.split("\t") for line in result.stdout.splitlines())
        assert head[0] == "PARTITION"
        assert bad == ["bad-0", "0", "0%", "-", "-", "-", "-", "the CRC of a batch is wrong"]
        assert orders == ["orders-0", "2", "50%", "2023-11-14 22:13:20Z", "1.5", "9→3", "900→300", ""]

    def test_json(self, run: Run, cleaned: Path) -> None:
        bad, orders = json.loads(run("log", "cleaner", cleaned, "--json").stdout)
        assert (bad["partition"], bad["uncleanable"], bad["last"]) == ("bad-0", "the CRC of a batch is wrong", None)
        assert (orders["cleanings"], orders["dirty_ratio"], orders["last"]["records_out"]) == (4, 0.5, 3)

    def test_a_directory_without_compaction(self, run: Run, data: Path) -> None:
        result = run("log", "cleaner", data)
        assert result.exit_code == 0
        assert result.stderr == f"No partition of {data} was cleaned yet.\n"
