"""The controller's messages that are packed by hand equal kio's, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.messages import controller_updates, inter_broker
from tests.support.kio_messages import messages, written

PACKED = {
    inter_broker.LeaderAndIsrRequest: lambda request: controller_updates.leader_and_isr(request),
    inter_broker.StopReplicaRequest: lambda request: controller_updates.stop_replica(request),
    inter_broker.UpdateMetadataRequest: lambda request: (
        controller_updates.update_metadata(request) + controller_updates.shared(request)
    ),
}


@pytest.mark.parametrize("kind", PACKED)
@settings(max_examples=50)
@given(data=st.data(), number=st.integers(0, 2**63 - 1))
def test_a_message_is_packed_as_kio_packs_it(kind: type, data: st.DataObject, number: int) -> None:
    message: Any = replace(data.draw(messages(kind)), number=number)
    assert PACKED[kind](message) + controller_updates.number_tag(number) == written(message)
