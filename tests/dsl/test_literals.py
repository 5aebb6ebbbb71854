"""Numbers and units."""

from fractions import Fraction

import pytest

from guerdon.dsl.literals import unit_value
from guerdon.dsl.parser import parse
from guerdon.dsl.source import Source


def value(text):
    file, found = parse(Source("t.task", f"x = {text}"))
    assert found == (), [d.message for d in found]
    return file.items[0].value


@pytest.mark.parametrize(
    ("text", "kind", "base"),
    [
        ("0", "number", 0), ("007", "number", 7), ("0.80", "number", Fraction(4, 5)),
        ("1e-6", "number", Fraction(1, 10**6)), ("2.5E3", "number", 2500), ("1e+2", "number", 100),
        ("1ms", "duration", 1), ("60s", "duration", 60_000), ("10min", "duration", 600_000),
        ("1.5h", "duration", 5_400_000), ("0.5ms", "duration", Fraction(1, 2)),
        ("3B", "size", 3), ("1KiB", "size", 1024), ("512MiB", "size", 536_870_912), ("4GiB", "size", 4_294_967_296),
        ("1kB", "size", 1000), ("2MB", "size", 2_000_000), ("1GB", "size", 10**9),
    ],
)
def test_exact_value(text, kind, base):
    assert unit_value(value(text)) == (kind, base)


def test_the_unit_stays_apart_from_the_number():
    found = value("512MiB")
    assert (found.value, found.unit, found.span.text) == (512, "MiB", "512MiB")


@pytest.mark.parametrize(("text", "low", "high"), [("0..0.2", 0, Fraction(1, 5)), ("1.5..2", Fraction(3, 2), 2)])
def test_ranges_are_not_decimals(text, low, high):
    file, found = parse(Source("t.task", f"ensure x in {text}"))
    assert found == ()
    assert (file.items[0].claim.range.low.value, file.items[0].claim.range.high.value) == (low, high)


@pytest.mark.parametrize(
    ("text", "column", "fix"),
    [
        ("512Mib", 8, "MiB"), ("3sec", 6, "s"), ("5m", 6, "min"), ("5M", 6, "MiB"), ("2G", 6, "GiB"), ("2g", 6, "GiB"),
        ("10_000", 7, None), ("2minn", 6, "min"), ("1e", 6, None),
    ],
)
def test_unknown_unit(text, column, fix):
    _, (found,) = parse(Source("t.task", f"x = {text}"))
    assert (found.code, found.span.column, found.fix and found.fix.replacement) == ("T009", column, fix)


@pytest.mark.parametrize("text", ["1e999999999999", "1e309", "1e-309", "9" * 41, "0." + "1" * 40, "9" * 5000])
def test_numbers_without_bound_are_refused(text):
    _, (found,) = parse(Source("t.task", f"x = {text}"))
    assert (found.code, repr(found.span)) == ("T010", "t.task:1:5")
