"""Rows: what is refused, what is read, and that splits stay where they are."""

from __future__ import annotations

import json

import pytest

GOOD = {"id": "a", "level": 1, "gold": "x", "notes": "notes.txt"}


def row(**changes):
    return json.dumps({**GOOD, **changes}) + "\n"


def first(found):
    return found[0].split()[0] if found else None


@pytest.mark.parametrize(("rows", "code", "words"), [
    (row(level=6), "T501", "is 6, outside of int in 1..5"),
    (row(level="3"), "T501", "`level` is not a number"),
    (row(level=True), "T501", "`level` is not a number"),
    (row(level=1.5), "T501", "is not an integer"),
    (row(id=5), "T501", "`id` is not a string"),
    (row(id=""), "T501", "the key is empty"),
    (row(id="x" * 300), "T501", "longer than 200"),
    (row(id="a\nb"), "T501", "not printable"),
    ('{"id": "a", "level": 1, "gold": "x"}\n', "T501", "the row has no `notes`"),
    ('{"id": "a", "level": 1, "gold": "x", "note": "n"}\n', "T501", "did you mean to call the field `note`?"),
    (row().replace(": 1,", ": NaN,"), "T501", "NaN is no JSON number"),
    (row().replace(": 1,", ": -Infinity,"), "T501", "-Infinity is no JSON number"),
    (row().replace(": 1,", ": 1e999999999,"), "T501", "not a number of a sane size"),
    (row().replace(": 1,", ": " + "1" * 5000 + ","), "T501", "not JSON"),
    (row().replace('"level": 1', '"level": 1, "level": 2'), "T501", "the key `level` stands twice"),
    (row(gold="\ud800"), "T501", "surrogates"),
    ("[" * 100_000 + "\n", "T501", "not JSON"),
    ("[1]\n", "T501", "each row is an object"),
    ("{\n", "T501", "not JSON"),
    (row() + row(), "T502", "two rows have the key 'a'"),
    ("\n\n", "T501", "has no rows"),
    (row(notes="missing.txt") , None, None),
], ids=lambda v: str(v)[:30])
def test_a_bad_row_is_named(told, rows, code, words):
    found = told(rows=rows)
    assert first(found) == code
    assert code is None or (len(found) == 1 and words in found[0]), found


def test_many_bad_rows_are_cut_short(make):
    found = make(rows="".join(row(id=str(n), level=9) for n in range(1000))).diagnostics
    assert len(found) == 10 and len({d.span.line for d in found}) == 10


def test_data_that_is_no_utf8_is_refused(told):
    found = told(files={"rows.jsonl": b"\xff\xfe\n"})
    assert first(found) == "T503" and "UTF-8" in found[0]


def test_a_byte_order_mark_and_windows_line_ends_are_read(make):
    compiled = make(files={"rows.jsonl": b"\xef\xbb\xbf" + row().replace("\n", "\r\n").encode() + row(id="b").encode()})
    assert [i.row for i in compiled.instances] == ["a", "b"]


def csv(make, text):
    return make('jsonl("rows.jsonl")', 'csv("rows.csv")', files={"rows.csv": text})


def test_csv_keeps_quotes_and_line_ends_inside_cells(make):
    compiled = csv(make, 'id,level,gold,notes\r\n"a ""1"", b",2,"two\nlines",notes.txt\r\nc,3,"x,y",notes.txt\r\n')
    assert [i.row for i in compiled.instances] == ['a "1", b', "c"]
    assert compiled.instances[0].prompt == 'Work on a "1", b.'


@pytest.mark.parametrize(("text", "words"), [
    ("id,level,gold,notes\na,2,x\n", "the row has 3 cells, the header 4"),
    ("id,level,level,gold,notes\na,2,3,x,n\n", "the header names `level` twice"),
    ('id,level,gold,notes\n"a"b,2,x,n\n', "this is not CSV"),
    ("id,level,gold,notes\na,1_0,x,n\n", "`level` is not a number"),
    ("id,level,gold,notes\na,٣,x,n\n", "`level` is not a number"),
    ("id,level,gold,notes\na,nan,x,n\n", "`level` is not a number"),
    ("id,level,gold,notes\n", "has no rows"),
    ("", "has no rows"),
], ids=lambda v: v[:25])
def test_bad_csv_is_named(make, text, words):
    found = csv(make, text).diagnostics
    assert [d.code for d in found] == ["T501"] and words in found[0].message


def splits(compiled):
    return {i.row: i.split for i in compiled.instances}


def test_adding_and_moving_rows_moves_no_row_to_another_split(make):
    names = [f"r{n}" for n in range(200)]
    before = splits(make(rows="".join(row(id=n) for n in names)))
    after = splits(make(rows="".join(row(id=n) for n in ["new", *reversed(names), "other"])))
    assert {n: after[n] for n in names} == before
    assert 60 < sum(s == "train" for s in before.values()) < 140  # 0.5 of 200; a fair hash is within 40 of 100


def test_another_seed_makes_another_split(make):
    rows = "".join(row(id=f"r{n}") for n in range(50))
    assert splits(make(rows=rows)) != splits(make("seed = 7", "seed = 8", rows=rows))


def test_rows_of_a_group_stay_together_and_a_missing_group_is_refused(make):
    grouped = ("split(seed = 7)", "split(seed = 7, group = repo)")
    rows = "".join(row(id=f"r{n}", repo=f"g{n % 9}") for n in range(90))
    found: dict[str, set[str]] = {}
    for name, split in splits(make(*grouped, rows=rows)).items():
        found.setdefault(f"g{int(name[1:]) % 9}", set()).add(split)
    assert all(len(s) == 1 for s in found.values()) and len({*map(tuple, found.values())}) == 2
    assert [d.code for d in make(*grouped).diagnostics] == ["T501"]


@pytest.mark.parametrize(("old", "new", "code"), [
    ("key = id", 'key = "id"', "T201"), ("key = id", "key = idd", "T501"), ("key = id", "", "T105"),
    ("seed = 7", "seed = 1.5", "T205"), ("seed = 7", "sead = 7", "T205"), ("train = 0.5", "train = 30s", "T203"),
    ('jsonl("rows.jsonl")', 'jsonl("row.jsonl")', "T503"), ('jsonl("rows.jsonl")', "xml(\"rows.xml\")", "T106"),
    ("notes: path }", "notes: path; more: list }", "T201"),
])
def test_a_bad_declaration_of_a_dataset(told, old, new, code):
    assert first(told(old, new)) == code
