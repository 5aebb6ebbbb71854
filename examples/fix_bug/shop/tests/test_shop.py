from src.shop.cart import Cart
from src.shop.text import slug


def test_one_line():
    assert Cart().add("tea", 250).total() == 250


def test_plain_slug():
    assert slug("tea") == "tea"
