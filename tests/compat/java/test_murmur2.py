"""Keys go to the same partition, whether a producer is written in Java or in Python."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

from barnabas.clients.partitioners import key_hash, murmur2
from tests.support import jars

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class Hash {
    public static void main(String[] keys) {
        for (String key : keys) {
            byte[] bytes = HexFormat.of().parseHex(key.substring(1));
            System.out.println(Utils.murmur2(bytes) + " " + BuiltInPartitioner.partitionForKey(bytes, 12));
        }
    }
}
"""


def test_keys_are_hashed_as_in_java(tmp_path: Path) -> None:
    source = tmp_path / "Hash.java"
    source.write_text(PROGRAM)
    chance = random.Random(2)
    keys = [chance.randbytes(length) for length in range(200)]
    words = [jars.program("java"), "-cp", jars.classpath("4.3.0"), str(source), *("x" + key.hex() for key in keys)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == [f"{murmur2(key)} {key_hash('t', key, 12)}" for key in keys]
