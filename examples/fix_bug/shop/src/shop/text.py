"""Texts for addresses."""

import re


def slug(title):
    """`Hello, World!` becomes `hello-world`."""
    return re.sub(r"[^a-z0-9]", "-", title.lower())
