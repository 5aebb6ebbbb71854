import pytest
from shop.text import slug


@pytest.mark.parametrize(
    ("title", "wanted"),
    [("Hello, World!", "hello-world"), ("  a  b ", "a-b"), ("---", ""), ("C3PO & R2D2", "c3po-r2d2")],
)
def test_slug(title, wanted):
    assert slug(title) == wanted
