"""What a customer wants to buy."""


class Cart:
    """Lines of (name, price in cents, quantity)."""

    def __init__(self):
        self.lines = []

    def add(self, name, cents, quantity=1):
        self.lines.append((name, cents, quantity))
        return self

    def total(self):
        return sum(cents for _, cents, _ in self.lines)
