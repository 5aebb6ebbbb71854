import pytest
from shop.stock import OutOfStock, reserve


def test_enough():
    stock = {"tea": 5}
    assert reserve(stock, "tea", 2) == 3
    assert stock == {"tea": 3}


def test_too_few():
    stock = {"tea": 1}
    with pytest.raises(OutOfStock):
        reserve(stock, "tea", 2)
    assert stock == {"tea": 1}


def test_unknown():
    with pytest.raises(OutOfStock):
        reserve({}, "cup", 1)
