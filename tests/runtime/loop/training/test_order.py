"""Which rows a step takes: a function of seed and step, with every row once an epoch."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from guerdon.runtime.loop.training.order import seed, taken


@given(st.integers(1, 40), st.integers(1, 17), st.integers(0, 5), st.integers(0, 2**32))
def test_every_row_once_an_epoch(size, count, epochs, run_seed):
    items = list(range(size))
    steps = -(-size * epochs // count)
    flat = [one for step in range(steps) for one in taken(items, step, count, run_seed)]
    assert len(flat) == steps * count
    for epoch in range(epochs):
        assert Counter(flat[epoch * size : (epoch + 1) * size]) == Counter(items)


def test_a_step_hangs_on_seed_and_number_alone():
    items = list(range(100))
    assert taken(items, 7, 8, 1) == taken(items, 7, 8, 1)
    assert taken(items, 7, 8, 1) != taken(items, 7, 8, 2) != taken(items, 8, 8, 2)


def test_seeds_tell_their_parts_apart():
    # SHA-256 of the canonical JSON text, its first eight bytes, without the sign: by hand with sha256sum.
    import hashlib

    text = b'["episode","train",1,2,"t","r",0]\n'
    assert seed("episode", "train", 1, 2, "t", "r", 0) == int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
    assert len({seed("a", 1), seed("a", "1"), seed("a1"), seed("a", 1, 0)}) == 4
