from shop.cart import Cart


def test_empty():
    assert Cart().total() == 0


def test_quantities():
    cart = Cart()
    cart.add("tea", 250, 3)
    cart.add("cup", 900)
    assert cart.total() == 1650


def test_zero_quantity():
    assert Cart().add("tea", 250, 0).total() == 0
