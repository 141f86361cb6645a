"""What the tests of our own clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


@pytest.fixture
def topic(new_topic: TopicMaker) -> str:
    """A new topic with four partitions."""
    return new_topic(4)
