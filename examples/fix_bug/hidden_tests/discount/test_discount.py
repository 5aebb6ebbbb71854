import pytest
from shop.price import discounted


def test_half():
    assert discounted(1000, 0.5) == 500


def test_all_and_nothing():
    assert [discounted(999, 1), discounted(999, 0)] == [0, 999]


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_refuses(rate):
    with pytest.raises(ValueError):
        discounted(1000, rate)
