"""No history that the rules of share partitions allow leaves the table that docs/queues.md draws."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import invariant

from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.machines.shares.states import DELIVERY_TRANSITIONS
from tests.properties.test_share_partition import SharePartitions


class SharePartitionsByTheTable(SharePartitions):
    """The histories of the other test; here every step of every record is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, DeliveryState] = {}
        self.of = self.machine

    @invariant()
    def every_step_is_in_the_table(self) -> None:
        now = {at: run.state for run in self.machine.runs for at in range(run.first, run.last + 1)}
        if self.of is self.machine:  # else another broker leads, and knows only what was stored
            for at, state in now.items():
                was = self.before.get(at, DeliveryState.AVAILABLE)
                assert was is state or DELIVERY_TRANSITIONS.allows(was, state), f"{at} went from {was} to {state}"
        self.before, self.of = now, self.machine


TestSharePartitionsByTheTable = SharePartitionsByTheTable.TestCase
TestSharePartitionsByTheTable.settings = hypothesis_settings(max_examples=25, stateful_step_count=40, deadline=None)
