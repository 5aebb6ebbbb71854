"""Stock by item name."""


class OutOfStock(Exception):
    """There are too few items."""


def reserve(stock, name, quantity):
    """Take items out of stock and return how many are left."""
    stock[name] = stock.get(name, 0) - quantity
    return stock[name]
