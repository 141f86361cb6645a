from __future__ import annotations

import subprocess
import sys

import pytest

import barnabas
from barnabas import clients
from tests.support.processes import WITHOUT_HYPOTHESIS

PROBE = (
    WITHOUT_HYPOTHESIS
    + """
import sys, barnabas
loaded = set(sys.modules)
assert not any(name.partition(".")[0] in ("kio", "confluent_kafka", "click") for name in loaded), loaded
barnabas.Producer
assert "confluent_kafka" not in sys.modules
barnabas.clients.Avro, barnabas.AsyncAdmin
assert "confluent_kafka" not in sys.modules and "fastavro" not in sys.modules
"""
)


def test_nothing_is_loaded_before_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", [barnabas, clients])
def test_every_name_that_is_promised_is_there(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]  # it is a module
        assert getattr(module, name) is not None
    assert dir(module) == sorted(module.__all__)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'no_such_thing'"):
        module.no_such_thing  # type: ignore[attr-defined]  # noqa: B018  (it is the access that fails)
