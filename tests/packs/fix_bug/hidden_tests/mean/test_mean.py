from calc import mean


def test_empty():
    assert mean([]) == 0


def test_values():
    assert mean([1, 2, 6]) == 3
