"""Rows: read from jsonl or csv, typed by the schema, keyed, split by a seeded hash (T50x)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from guerdon.compiler.pack import Pack, PackError
from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.program import Declaration
from guerdon.compiler.static import number
from guerdon.compiler.types import BROKEN, Type, decimal, read_type
from guerdon.compiler.values import Val
from guerdon.dsl.diagnostic import Diagnostic, Label, error
from guerdon.dsl.source import Source, Span
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Arg, Call, Item, Num, Ref, Str

MAX_ROW_ERRORS = 10
_NUMBER = re.compile(r"[+-]?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,4})?")


@dataclass(frozen=True)
class Row:
    """One row: its key, its split (empty where the dataset has none), its typed fields."""

    key: str
    split: str
    fields: Mapping[str, Val]


@dataclass(frozen=True)
class Dataset:
    """A resolved dataset: the types of its fields and its rows."""

    types: Mapping[str, Type]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _Split:
    seed: int = 0
    group: str = ""
    shares: tuple[tuple[str, Fraction], ...] = ()


def read_dataset(declared: Declaration, pack: Pack, found: list[Diagnostic]) -> Dataset | None:
    """Read a dataset; None where nothing of it can be used."""
    item = declared.item
    types = _schema(item, found)
    path = _path(item, pack, found)
    key = item.find("key")
    if key is not None and not isinstance(key.value, Ref):
        found.append(error("T201", "the key of a dataset is the plain name of a field, or `content`", key.span,
                           help="write `key = id`"))
        return None
    key_name = key.value.name if key is not None and isinstance(key.value, Ref) else "content"
    if key is not None and key_name != "content" and key_name not in types:
        guess = did_you_mean(key_name, tuple(types))
        found.append(error("T501", f"the key `{key_name}` is no field of the schema", key.span,
                           help=f"did you mean `{guess}`?" if guess else "name a field, or `content`"))
        return None
    split = _read_split(item, found)
    if path is None or not types:
        return None
    reader = _Reader(types, key_name, split, found)
    assert isinstance(item.value, Call)
    return reader.read(path, item.value.fn.text)


def _schema(item: Item, found: list[Diagnostic]) -> dict[str, Type]:
    schema = item.find("schema")
    types: dict[str, Type] = {}
    for field in (schema.body or ()) if schema else ():
        assert field.type is not None
        types[field.word.text] = read_type(field.type, found)
    return types


def _path(item: Item, pack: Pack, found: list[Diagnostic]) -> Path | None:
    call = item.value
    if not isinstance(call, Call) or call.fn.text not in ("jsonl", "csv") or len(call.args) != 1:
        found.append(error("T106", 'a dataset is written `dataset NAME = jsonl("file")` or `csv("file")`',
                           item.span, help='write `= jsonl("rows.jsonl")`'))
        return None
    argument = call.args[0].value
    if not isinstance(argument, Str) or argument.literal is None:
        found.append(error("T201", "the file of a dataset is a literal path", call.span,
                           help='write `jsonl("rows.jsonl")`'))
        return None
    try:
        pack.file(argument.literal)
        return pack.locate(argument.literal)
    except PackError as problem:
        found.append(error("T503", str(problem), argument.span, help=problem.remedy))
        return None


def _read_split(item: Item, found: list[Diagnostic]) -> _Split:
    written = item.find("split")
    if written is None:
        return _Split()
    seed, group = 0, ""
    for arg in written.args or ():
        if arg.name is not None and arg.name.text == "seed" and isinstance(arg.value, Num) and (
                not arg.value.unit and arg.value.value.denominator == 1):
            seed = int(arg.value.value)
        elif arg.name is not None and arg.name.text == "group" and isinstance(arg.value, Ref):
            group = arg.value.name
        else:
            _bad_split_arg(arg, found)
    shares = []
    for share in written.body or ():
        value = number(share.value) if isinstance(share.value, Num) else None
        if value is None or value.type.name not in ("real", "int") or not 0 <= value.data <= 1:
            found.append(error("T203", "a share is a number in 0..1", share.span,
                               help="write for example `train = 0.9`"))
        else:
            shares.append((share.word.text, value.data))
    total = sum((s for _, s in shares), Fraction(0))
    if shares and total != 1:
        found.append(error("T203", f"the shares sum to {decimal(total)}, not to 1", written.span,
                           help="make the shares sum to exactly 1"))
    return _Split(seed, group, tuple(shares))


def _bad_split_arg(arg: Arg, found: list[Diagnostic]) -> None:
    found.append(error("T205", "`split` takes `seed = NUMBER` and `group = FIELD`", arg.span,
                       help="write `split(seed = 7) { … }`"))


@dataclass
class _Reader:
    types: Mapping[str, Type]
    key: str
    split: _Split
    found: list[Diagnostic]
    errors: int = 0
    is_text: bool = False
    """Cells are text (CSV), read by their meaning."""

    def read(self, path: Path, kind: str) -> Dataset:
        """All good rows of a file; each bad line is reported (the first ten)."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as problem:
            source = Source(path.as_posix(), "")
            self.found.append(error("T503", f"`{path.name}` cannot be read: {problem}", Span(source, 0, 0),
                                    help="give a readable UTF-8 file"))
            return Dataset(self.types, ())
        source = Source(path.as_posix(), text)
        self.is_text = kind == "csv"
        rows: list[Row] = []
        seen: dict[str, Span] = {}
        if self.is_text and self._lacks_column(source):
            return Dataset(self.types, ())
        for raw, span in (_jsonl if kind == "jsonl" else _csv)(source):
            row = self._row(raw, span)
            if row is None:
                continue
            first = seen.setdefault(row.key, span)
            if first is not span:
                self._report("T502", f"two rows have the key {row.key!r}", span, "keys identify rows: make them unique",
                             (Label(first, "first here"),))
                continue
            rows.append(row)
        if not rows and not self.errors:
            self._report("T501", f"`{path.name}` has no rows", Span(source, 0, 0), "give at least one row")
        return Dataset(self.types, tuple(rows))

    def _lacks_column(self, source: Source) -> bool:
        """Whether a field of the schema is not in a CSV's header: said once, not for every row."""
        try:
            header = next(csv.reader(io.StringIO(source.text, newline=""), strict=True), [])
        except csv.Error:
            return False
        lacking = [name for name in self.types if name not in header] if header else []
        for name in lacking:
            guess = did_you_mean(name, tuple(header))
            self._report("T501", f"the header has no `{name}`", Span(source, 0, len(source.line(1))),
                         f"did you mean to call the column `{guess}`?" if guess else
                         "add the column, or take the field out of the schema")
        return bool(lacking)

    def _report(self, code: str, message: str, span: Span, help: str, labels: tuple[Label, ...] = ()) -> None:
        self.errors += 1
        if self.errors <= MAX_ROW_ERRORS:
            self.found.append(error(code, message, span, help=help, labels=labels))

    def _row(self, raw: Any, span: Span) -> Row | None:
        if not isinstance(raw, dict):
            form = "give each line a cell for each name of the header" if self.is_text else (
                "each line is one JSON object" if isinstance(raw, _Problem) else
                "each row is an object with the schema's fields")
            self._report("T501", str(raw) if isinstance(raw, _Problem) else "this row is no object", span, form)
            return None
        fields: dict[str, Val] = {}
        for name, kind in self.types.items():
            if name not in raw:
                guess = did_you_mean(name, tuple(raw))
                self._report("T501", f"the row has no `{name}`", span,
                             f"did you mean to call the field `{guess}`?" if guess else "add the field to every row")
                return None
            value = _convert(raw[name], kind, self.is_text)
            if isinstance(value, _Problem):
                self._report("T501", f"`{name}` {value}", span, f"the schema says `{name}: {kind}`")
                return None
            fields[name] = value
        key = _content_key(raw) if self.key == "content" else str(_plain(fields[self.key]))
        if not key or len(key) > 200 or any(ord(c) < 32 for c in key):
            self._report("T501", "the key is empty, longer than 200 characters or not printable", span,
                         "give a short key")
            return None
        group = self.split.group
        if group and group not in raw:
            self._report("T501", f"the row has no `{group}`, by which the split groups", span,
                         "add the field to every row, or split without `group`")
            return None
        return Row(key, self._share(raw, key), fields)

    def _share(self, raw: Mapping[str, Any], key: str) -> str:
        """The split by hash of seed and key (or group): adding rows moves no other row."""
        if not self.split.shares:
            return ""
        unit = str(raw[self.split.group]) if self.split.group else key
        mark = hashlib.sha256(f"{self.split.seed}\0{unit}".encode()).digest()
        point = Fraction(int.from_bytes(mark[:8], "big"), 1 << 64)
        upto = Fraction(0)
        for name, share in self.split.shares:
            upto += share
            if point < upto:
                return name
        return self.split.shares[-1][0]


class _Problem(str):
    """What is wrong with a cell, in words that follow the field's name."""


def _jsonl(source: Source) -> Iterator[tuple[Any, Span]]:
    start = 0
    for line in source.text.split("\n"):
        span = Span(source, start, start + len(line))
        start += len(line) + 1
        if not line.strip():
            continue
        try:
            yield _json(line), span
        except (ValueError, RecursionError) as problem:
            yield _Problem(f"this line is not JSON: {problem}"), span


def _json(text: str) -> Any:
    """JSON without its loose ends: no NaN, no key twice, no half of a surrogate pair. Raises ValueError."""
    value = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_unique)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False, default=str).encode()
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key `{next(n for n in names if names.count(n) > 1)}` stands twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _csv(source: Source) -> Iterator[tuple[Any, Span]]:
    reader = csv.reader(io.StringIO(source.text, newline=""), strict=True)
    starts = source.line_starts
    try:
        header = next(reader, [])
        previous = reader.line_num
        twice = sorted({h for h in header if header.count(h) > 1})
        if twice:
            yield _Problem(f"the header names `{twice[0]}` twice"), Span(source, 0, len(source.line(1)))
            return
        for cells in reader:
            begin = starts[min(previous, len(starts) - 1)]
            span = Span(source, begin, max(begin, starts[min(reader.line_num, len(starts) - 1)] - 1))
            previous = reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                yield _Problem(f"the row has {len(cells)} cells, the header {len(header)}"), span
            else:
                yield dict(zip(header, cells, strict=True)), span
    except csv.Error as problem:
        yield _Problem(f"this is not CSV: {problem}"), Span(source, 0, 0)


def _content_key(raw: Mapping[str, Any]) -> str:
    return digest(dumps({k: str(v) for k, v in raw.items()})).removeprefix("sha256:")[:16]


def _plain(value: Val) -> object:
    return decimal(value.data) if isinstance(value.data, Fraction) else value.data


def _convert(raw: Any, kind: Type, is_text: bool) -> Val | _Problem:
    """A cell as a type: JSON values as they are, CSV text by its meaning."""
    if kind is BROKEN:
        return Val(kind, raw)
    match kind.name:
        case "string" | "path" | "image":
            return Val(kind, raw, kind.secret) if isinstance(raw, str) else _Problem("is not a string")
        case "bool":
            raw = {"true": True, "false": False}.get(raw, raw) if is_text and isinstance(raw, str) else raw
            return Val(kind, raw, kind.secret) if isinstance(raw, bool) else _Problem("is not true or false")
        case "list":
            return _convert_list(raw, kind, is_text)
        case _:
            return _convert_number(raw, kind, is_text)


def _convert_list(raw: Any, kind: Type, is_text: bool) -> Val | _Problem:
    if is_text:
        try:
            raw = _json(raw)
        except (ValueError, RecursionError):
            return _Problem("is not a list (in CSV, write a JSON list)")
    if not isinstance(raw, list):
        return _Problem("is not a list")
    assert kind.element is not None
    items: list[Val] = []
    for cell in raw:
        item = _convert(cell, kind.element, False)
        if isinstance(item, _Problem):
            return _Problem(f"holds an element that {item}")
        items.append(item)
    return Val(kind, tuple(items), kind.secret or any(i.secret for i in items))


def _convert_number(raw: Any, kind: Type, is_text: bool) -> Val | _Problem:
    good = isinstance(raw, str) and _NUMBER.fullmatch(raw) if is_text else isinstance(raw, int | Decimal)
    if isinstance(raw, bool) or not good:
        return _Problem("is not a number")
    try:
        exact = Decimal(raw)
        if not exact.is_finite() or abs(exact.adjusted()) > 300 or len(exact.as_tuple().digits) > 300:
            return _Problem("is not a number of a sane size")
        value = Fraction(exact)
    except ArithmeticError:
        return _Problem("is not a number")
    if kind.name == "int" and value.denominator != 1:
        return _Problem("is not an integer")
    if (kind.low is not None and value < kind.low) or (kind.high is not None and value > kind.high):
        return _Problem(f"is {decimal(value)}, outside of {kind}")
    return Val(kind, value, kind.secret)
