"""Thousands of stories, none of which may break a promise; and mistakes, each of which some story must find.

`BARNABAS_SIMULATION_SEEDS=100000 pytest -n 2 tests/simulation` tells more of them. A seed that breaks a promise tells
the same story again: `Story(seed).run()`.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.promises import Broken
from tests.simulation.story import PARTITIONS, Story

SEEDS = int(os.environ.get("BARNABAS_SIMULATION_SEEDS", "160"))
PORTION = 40
ENOUGH = 400
"""So many stories at most it takes to find any of the mistakes."""


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_every_story_keeps_the_promises(first: int) -> None:
    for seed in range(first, min(first + PORTION, SEEDS)):
        try:
            Story(seed).run()
        except Broken as broken:
            pytest.fail(f"the story of seed {seed} breaks a promise: {broken}")


def test_stories_have_all_that_is_to_be_told() -> None:
    """Leaders and controllers change, and records are committed all the same; some clients wait on for theirs."""
    stories = [Story(seed) for seed in range(10)]
    for story in stories:
        story.run()
        assert all(len(story.promises.committed[index]) > 10 for index in range(PARTITIONS))
    assert sum(story.tree.controller_epoch for story in stories) > 30
    assert sum(story.promises.waited_on for story in stories) > 30
    assert sum(partition.leader_epoch for story in stories for partition in story.tree.topic.partitions) > 100


def test_a_seed_always_tells_the_same_story() -> None:
    first, second = Story(7), Story(7)
    first.run()
    second.run()
    assert first.tree.topic == second.tree.topic
    assert first.promises.committed == second.promises.committed


@pytest.mark.parametrize("bug", BUGS)
def test_a_mistake_is_found(bug: str) -> None:
    for seed in range(ENOUGH):
        try:
            Story(seed, BUGS[bug]).run()
        except Broken:
            return
    pytest.fail(f"{ENOUGH} stories, and nobody noticed: {bug}")
