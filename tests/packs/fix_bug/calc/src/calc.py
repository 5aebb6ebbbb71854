"""A small calculator."""


def sign(x):
    return 1 if x > 0 else -1


def mean(values):
    return sum(values) / len(values)
