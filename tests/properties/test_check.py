"""Whatever happens to the bytes of a partition, the checker reports and never fails; where it can know, it finds it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.check import check
from tests.unit.storage.test_check import SEGMENT, batch, snapshot, write_segment

COUNT = 6
SIZE = len(batch(0))


def write(path: Path) -> None:
    write_segment(path, 0, [batch(i * 3, time=1000 + i, producer=5) for i in range(COUNT)])
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (path / "partition.metadata").write_text("version: 0\ntopic_id: om2_OlAOSjy1zpOO6eubKA")
    (path / f"{18:020d}.snapshot").write_bytes(snapshot((5, 17)))


@given(st.sampled_from(["log", "index", "timeindex", "snapshot"]), st.data())
def test_one_changed_byte_is_found(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        write(path)
        assert check(path).findings == []
        file = path / (f"{18:020d}.snapshot" if kind == "snapshot" else f"{SEGMENT}.{kind}")
        content = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
        report = check(path)
        last_offset_alone = kind == "log" and at // SIZE == COUNT - 1 and at % SIZE < 8  # a gap before it is no error
        within_its_batch = kind == "timeindex" and at % 12 == 11  # Kafka names a record of the batch, any of them
        assert last_offset_alone or within_its_batch or not report.ok


@given(
    st.sampled_from(
        [
            f"{SEGMENT}.log",
            f"{SEGMENT}.index",
            f"{SEGMENT}.timeindex",
            f"{SEGMENT}.txnindex",
            f"{9:020d}.snapshot",
            f"{9:020d}.log",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
    ),
    st.binary(max_size=200),
    st.booleans(),
)
def test_noise_in_any_file_is_survived(name: str, noise: bytes, append: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        write(path)
        file = path / name
        file.write_bytes((file.read_bytes() if append and file.exists() else b"") + noise)
        check(path)
