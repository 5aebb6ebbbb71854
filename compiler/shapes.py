"""The shape pass: every block holds only what the vocabulary says, each once where once is meant (T10x)."""

from __future__ import annotations

from dataclasses import replace

from guerdon.compiler.vocabulary import (
    ALLOW,
    CLAIM,
    LABELLED,
    NAMED,
    SHAPES,
    STEP,
    VALUE,
    WRITTEN,
    Shape,
)
from guerdon.dsl.diagnostic import Diagnostic, Label, error
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import File, Item

Found = list[Diagnostic]
MISSING = "T105"
_REPEATABLE = (NAMED, LABELLED, CLAIM, ALLOW, STEP)


def check_file(file: File, *, is_whole: bool = True) -> tuple[tuple[Item, ...], Found]:
    """The statements of a file that have a shape the compiler knows, and an error for each that has not.

    Where the file did not parse as a whole, what seems to be missing may only have been misread: not reported.
    """
    found: Found = []
    items = _body(file.items, SHAPES["file"], "a file", found, extra_keys={})
    return items, [d for d in found if is_whole or d.code != MISSING]


def check_body(item: Item, shape: str, found: Found, extra_keys: dict[str, str] | None = None) -> Item:
    """The same item with only the statements of its body that fit the shape."""
    if item.body is None:
        return item
    kept = _body(item.body, SHAPES[shape], f"`{_title(item)}`", found, extra_keys or {})
    _missing(item, SHAPES[shape], found)
    return replace(item, body=kept)


def _missing(item: Item, shape: Shape, found: Found) -> None:
    written = {i.word.text for i in item.body or ()}
    meant = {did_you_mean(word, tuple(shape.keys)) for word in written - set(shape.keys)}
    for key in shape.required:
        if key not in written and key not in meant:
            found.append(error(MISSING, f"`{_title(item)}` lacks `{key}`", item.word.span,
                               help=f"add `{WRITTEN[shape.keys[key]].format(key)}`"))


def _title(item: Item) -> str:
    return f"{item.word.text} {item.name.text}" if item.name else item.word.text


def _body(items: tuple[Item, ...], shape: Shape, where: str, found: Found,
          extra_keys: dict[str, str]) -> tuple[Item, ...]:
    kept: list[Item] = []
    seen: dict[str, Item] = {}
    for item in items:
        fitted = _free(item, shape, where, found) if shape.free else _keyed(item, shape, where, found, extra_keys)
        if fitted is None:
            continue
        kind = VALUE if shape.free else {**shape.keys, **extra_keys}[item.word.text]
        if _is_repeat(item, kind, seen, where, found):
            continue
        kept.append(fitted)
    return tuple(kept)


def _is_repeat(item: Item, kind: str, seen: dict[str, Item], where: str, found: Found) -> bool:
    if kind in _REPEATABLE:
        if kind != NAMED or item.name is None:
            return False
        key = f"{item.word.text} {item.name.text}"
    elif item.word.text == "import":
        return False
    else:
        key = item.word.text
    first = seen.setdefault(key, item)
    if first is item:
        return False
    found.append(error("T104", f"`{key}` stands twice in {where}", item.word.span, label="again here",
                       labels=(Label(first.word.span, "first here"),), help="remove one of them"))
    return True


def _free(item: Item, shape: Shape, where: str, found: Found) -> Item | None:
    if shape.free == "field":
        if item.type is not None and item.name is None:
            return item
        wanted = "name: type"
    elif shape.free == "path":
        if item.label is not None and item.assigns:
            return item
        wanted = '"/absolute/path" = …'
    else:
        if item.assigns and item.name is None and item.type is None and item.label is None:
            return item
        wanted = "name = …"
    found.append(error("T106", f"{where} holds lines of the form `{wanted}`", item.span,
                       help=f"write `{wanted}` or move this line to another block"))
    return None


def _keyed(item: Item, shape: Shape, where: str, found: Found, extra: dict[str, str]) -> Item | None:
    word = item.word.text
    keys = {**shape.keys, **extra}
    kind = keys.get(word)
    if kind is None:
        _unknown(item, keys, where, found)
        return None
    if not _fits(item, kind):
        written = WRITTEN[kind].format(word)
        found.append(error("T106", f"`{word}` is written `{written}` in {where}", item.span,
                           help=f"write `{written}`"))
        return None
    inner = shape.blocks.get(word)
    if inner is None and item.body is not None and kind not in (STEP,):
        found.append(error("T106", f"`{word}` takes no block in {where}", item.span, help="remove the `{ … }`"))
        return None
    if inner is not None and item.body is None and SHAPES[inner].required:
        found.append(error("T106", f"`{_title(item)}` needs a block in {where}", item.span,
                           help=f"write `{_title(item)} {{ … }}`"))
        return None
    # Verifiers take their kind's settings as well, so the resolver checks their bodies once it knows the kind.
    if inner is None or inner == "verifier" or item.body is None:
        return item
    return check_body(item, inner, found)


def _unknown(item: Item, keys: dict[str, str], where: str, found: Found) -> None:
    word = item.word.text
    guess = did_you_mean(word, tuple(keys))
    code, what = ("T102", "there is no block") if where == "a file" else ("T103", f"{where} has no key")
    found.append(error(code, f"{what} `{word}`", item.word.span,
                       help=f"did you mean `{guess}`?" if guess else "known here: " + ", ".join(sorted(keys))))


def _fits(item: Item, kind: str) -> bool:
    match kind:
        case "value":
            return item.assigns and item.name is None and item.value is not None
        case "block":
            return item.body is not None and item.name is None and not item.assigns
        case "named":
            return item.name is not None and item.reason is None
        case "labelled":
            return item.label is not None and item.body is not None
        case "claim":
            return item.claim is not None
        case "allow":
            return item.name is not None and item.reason is not None
        case "bare":
            return not item.assigns and item.name is None and (item.value is not None or item.label is not None)
        case _:
            return not item.assigns
