from calc import div


def test_zero():
    assert div(1, 0) is None
