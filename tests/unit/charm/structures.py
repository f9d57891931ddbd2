"""Structures of any kind by a seed: a seed and a number name one for good, and cost little."""

import random


def structure(seeded: random.Random, words, scalars, depth=4):
    """Make a value that nests up to a depth, of the words that somebody reads."""
    chance = seeded.random()
    if not depth or chance < 0.4:
        return seeded.choice(scalars)
    inner = range(seeded.randint(0, 4))
    if chance < 0.6:
        return [structure(seeded, words, scalars, depth - 1) for _ in inner]
    return {seeded.choice(words): structure(seeded, words, scalars, depth - 1) for _ in inner}
