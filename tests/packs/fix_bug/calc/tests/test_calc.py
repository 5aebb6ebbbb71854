from src.calc import sign


def test_positive():
    assert sign(3) == 1
