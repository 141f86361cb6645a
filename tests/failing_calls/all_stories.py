"""All stories by their names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.failing_calls import broker_stories, log_stories, story

if TYPE_CHECKING:
    from pathlib import Path

    from tests.failing_calls.story import Teller


def tellers(folder: Path) -> dict[str, Teller]:
    """Who tells each story; those of logs in an empty folder."""
    of_logs: dict[str, Teller] = {name: partial(story.tell, make, folder) for name, make in log_stories.STORIES.items()}
    return of_logs | {name: partial(broker_stories.tell, name) for name in broker_stories.STORIES}
