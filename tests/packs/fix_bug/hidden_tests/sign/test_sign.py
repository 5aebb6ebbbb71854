from calc import sign


def test_zero():
    assert sign(0) == 0


def test_signs():
    assert [sign(x) for x in (-2, 5)] == [-1, 1]
