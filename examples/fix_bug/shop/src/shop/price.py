"""Prices in cents."""


def discounted(cents, rate):
    """The price after a discount of `rate` (0..1), rounded down."""
    return int(cents - cents * rate * 1.1)
