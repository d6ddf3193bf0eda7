"""Episodes: what they contain, and that they depend only on seed, session and step."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import torch

from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize
from cocoamix.seeding import derive_seed

LABELS = [7] * 6 + [3] * 6 + [5] * 6 + [9] * 2


def sampler(seed: int = 1, session: int = 0, size: tuple[int, ...] = (2, 3, 2, 5)) -> EpisodeSampler:
    made = EpisodeSampler(LABELS, EpisodeSize(*size), session, steps=11, block_steps=4)
    made.seed = seed
    return made


def test_episodes_have_the_configured_sizes() -> None:
    for step in range(11):
        episode = sampler().draw(step)
        classes = [LABELS[place] for place in episode.support]
        assert classes == sorted(classes, key=classes.index)  # class after class
        assert len(set(classes)) == 2
        assert len(set(episode.support)) == len(episode.support)
        few, others = episode.query[:5], episode.query[5:]
        assert len(set(few)) == 5
        assert not set(others) & set(episode.support)
        for label, count in Counter(classes).items():
            there = LABELS.count(label)
            assert count == min(3, there)
            assert Counter(LABELS[place] for place in others)[label] == min(2, there - count)


def test_sizes_are_limits() -> None:
    """In a later session every class is drawn; the query has all images, then again those outside the support."""
    episode = sampler(size=(10, 1, 5, 50)).draw(0)
    assert len(episode.support) == 4
    assert sorted(episode.query[:20]) == list(range(20))
    assert sorted((*episode.support, *episode.query[20:])) == list(range(20))


def test_episodes_depend_on_seed_session_and_step() -> None:
    first = [sampler().draw(step) for step in range(11)]
    assert first == [sampler().draw(step) for step in range(11)]
    assert len({(one.support, one.query) for one in first}) == 11
    assert first != [sampler(seed=2).draw(step) for step in range(11)]
    assert first != [sampler(session=1).draw(step) for step in range(11)]
    assert {LABELS[one.support[0]] for one in first} == set(LABELS)


def global_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()]


def test_draws_do_not_use_global_generators() -> None:
    """The episodes do not depend on their state, and drawing neither advances nor reseeds them."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = global_states()
        found.append([sampler().draw(step) for step in (4, 0)])
        assert global_states() == before
    assert found[0] == found[1]


def test_first_episode_matches_manual_calculation() -> None:
    """The permutations of one generator, seeded by seed, session and step: classes, their images, then the batch."""
    for seed, session, step in ((1, 0, 0), (1, 2, 0), (1, 0, 7), (3, 2, 7)):
        generator = torch.Generator().manual_seed(derive_seed(seed, "episode", session, step))
        classes = [(7, 3, 5, 9)[number] for number in torch.randperm(4, generator=generator)[:2]]
        support: list[int] = []
        others: list[int] = []
        for label in classes:
            images = [index for index, its in enumerate(LABELS) if its == label]
            order = [images[number] for number in torch.randperm(len(images), generator=generator)]
            support, others = support + order[:3], others + order[3:5]
        batch = torch.randperm(len(LABELS), generator=generator)[:5].tolist()
        episode = sampler(seed, session).draw(step)
        assert list(episode.support) == support
        assert list(episode.query) == batch + others


def test_blocks_cover_all_steps() -> None:
    """They cover all steps in turn; one can be iterated without those before it."""
    made, found = sampler(), []
    assert made.blocks == 3
    for block in (2, 0, 1):
        made.block = block
        batches = list(made)
        assert len(batches) == len(made) == (3 if block == 2 else 4)
        found.append((block, batches))
    whole = [batch for _, batches in sorted(found) for batch in batches]
    assert whole == [[*one.support, *one.query] for one in map(made.draw, range(11))]
