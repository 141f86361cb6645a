"""Whatever stands in a file, dumping it ends with lines and not with an error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch, seal
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from barnabas.storage.dump import DumpOptions, dump

BATCHES = [build_batch([Record(i, i, b"key", b"value") for i in range(3)], codec=codec) for codec in Codec]
BATCHES.append(build_marker(EndOfTransaction(ControlType.ABORT, 1), timestamp=5, producer_id=1, producer_epoch=0))
SUFFIXES = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"]
NAMES = ["leader-epoch-checkpoint", "log-start-offset-checkpoint", "partition.metadata", "meta.properties"]
OPTIONS = [
    DumpOptions(),
    DumpOptions(print_data_log=True),
    DumpOptions(verify_index_only=True),
    DumpOptions(index_sanity_check=True),
    DumpOptions(deep_iteration=True, max_bytes=100),
]


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches with some bytes changed, half of them with a CRC that fits again."""
    out = b""
    for batch in draw(st.lists(st.sampled_from(BATCHES), max_size=4)):
        changed = bytearray(batch)
        at = draw(st.integers(0, len(batch)))
        new = draw(st.binary(max_size=8))
        changed[at : at + len(new)] = new
        sealed = len(changed) >= HEADER_SIZE and draw(st.booleans())
        out += seal(read_header(changed)._replace(magic=2), changed[HEADER_SIZE:]) if sealed else bytes(changed)
    return out + draw(st.binary(max_size=80))


@given(st.sampled_from(SUFFIXES + NAMES), logs(), st.binary(max_size=120), st.sampled_from(OPTIONS))
def test_dumping_never_fails(name: str, log: bytes, other: bytes, options: DumpOptions) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "00000000000000000007.log").write_bytes(log)
        path = Path(directory) / (f"00000000000000000007{name}" if name in SUFFIXES else name)
        if name != ".log":
            path.write_bytes(other)
        assert next(dump(path, options)) == f"Dumping {path}"
        assert all(isinstance(line, str) for line in dump(path, options))
