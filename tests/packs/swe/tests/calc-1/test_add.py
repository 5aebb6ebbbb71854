from calc import add


def test_int():
    assert type(add(1, 2)) is int


def test_float():
    assert add(1.0, 2) == 3.0
