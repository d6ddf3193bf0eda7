"""Episodes: what they hold, and that they depend on seed, session and step alone."""

from __future__ import annotations

from collections import Counter

from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize

LABELS = [7] * 6 + [3] * 6 + [5] * 6 + [9] * 2


def sampler(seed: int = 1, session: int = 0, size: tuple[int, ...] = (2, 3, 2, 5)) -> EpisodeSampler:
    made = EpisodeSampler(LABELS, EpisodeSize(*size), session, steps=11, block_steps=4)
    made.seed = seed
    return made


def test_sizes() -> None:
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
    """A later session: each class is drawn, all images are in the query, and all but one of each again."""
    episode = sampler(size=(10, 1, 5, 50)).draw(0)
    assert len(episode.support) == 4
    assert sorted(episode.query[:20]) == list(range(20))
    assert sorted((*episode.support, *episode.query[20:])) == list(range(20))


def test_draws() -> None:
    first = [sampler().draw(step) for step in range(11)]
    assert first == [sampler().draw(step) for step in range(11)]
    assert len({(one.support, one.query) for one in first}) == 11
    assert first != [sampler(seed=2).draw(step) for step in range(11)]
    assert first != [sampler(session=1).draw(step) for step in range(11)]
    assert {LABELS[one.support[0]] for one in first} == set(LABELS)


def test_blocks() -> None:
    """They go through all steps in turn; one may be gone through without those before it."""
    made, found = sampler(), []
    assert made.blocks == 3
    for block in (2, 0, 1):
        made.block = block
        batches = list(made)
        assert len(batches) == len(made) == (3 if block == 2 else 4)
        found.append((block, batches))
    whole = [batch for _, batches in sorted(found) for batch in batches]
    assert whole == [[*one.support, *one.query] for one in map(made.draw, range(11))]
