"""Names: the declarations of a pack's files, its imports and the std library (T10x)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from guerdon.compiler.pack import Pack, PackError
from guerdon.compiler.shapes import check_file
from guerdon.dsl import std
from guerdon.dsl.diagnostic import Diagnostic, Label, error
from guerdon.dsl.parser import parse, read
from guerdon.dsl.source import Source, Span
from guerdon.dsl.suggest import did_you_mean
from guerdon.dsl.tree import Item, Name, Num, Ref, Str

EDITIONS = (1,)
DECLARING = ("dataset", "environment", "verifier", "reward", "task", "image", "tool", "kind")


@dataclass(frozen=True, eq=False)
class Declaration:
    """A named thing and the scope in which its own names are looked up."""

    kind: str
    item: Item
    scope: Scope

    @property
    def name(self) -> str:
        assert self.item.name is not None
        return self.item.name.text


@dataclass(eq=False)
class Scope:
    """The names that one file sees: its own and the imported ones."""

    source: Source
    names: dict[str, Declaration] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    """Names whose declarations did not parse: using one is no second error."""
    is_partial: bool = False
    """Something of the file did not parse or has no known shape, and was left out."""
    unread: bool = False
    """The file could not be read, which was reported."""

    def find(self, name: Name, kinds: tuple[str, ...], found: list[Diagnostic]) -> Declaration | None:
        """The declaration of one of some kinds that a name means; reports what it is instead."""
        declared = self.names.get(name.text)
        if declared is not None and declared.kind in kinds:
            return declared
        wanted = " or ".join(kinds)
        if declared is not None:
            found.append(error("T105", f"`{name.text}` is a {declared.kind}, not a {wanted}", name.span,
                               labels=(Label(declared.item.span, "declared here"),), help=f"name a {wanted} here"))
        elif name.text not in self.broken:
            known = tuple(n for n, d in self.names.items() if d.kind in kinds)
            guess = did_you_mean(name.text, known)
            found.append(error("T101", f"there is no {wanted} `{name.text}`", name.span,
                               help=f"did you mean `{guess}`?" if guess else _nothing_near(wanted, known)))
        return None


def _nothing_near(wanted: str, known: tuple[str, ...]) -> str:
    return "known here: " + ", ".join(sorted(known)) if known else f"declare or import a {wanted} first"


@dataclass(frozen=True, eq=False)
class Program:
    """Everything that was declared; `main` is the file that a person named."""

    pack: Pack
    main: Scope
    kinds: Mapping[str, Declaration]
    items: tuple[Item, ...]


class Loader:
    """Reads files once each and follows imports."""

    def __init__(self, pack: Pack, shown: Path) -> None:
        self.pack = pack
        self.shown = shown
        self.found: list[Diagnostic] = []
        self.loaded: dict[str, Scope | None] = {}
        self.main_items: tuple[Item, ...] = ()

    def program(self, main: Path) -> Program | None:
        """Load the main file and the prelude."""
        prelude = self._std(std.PRELUDE)
        source = self._read(main)
        if source is None or prelude is None:
            return None
        self.loaded[main.name] = None
        scope = self._scope(source, main=True)
        kinds = {n: d for n, d in prelude.names.items() if d.kind == "kind"}
        kinds |= {n: d for n, d in scope.names.items() if d.kind == "kind"}
        return Program(self.pack, scope, kinds, self.main_items)

    def _read(self, path: Path, at: Str | None = None) -> Source | None:
        try:
            name = (self.shown / path.relative_to(self.pack.root)).as_posix()
        except ValueError:
            name = path.as_posix()
        result = read(path, name)
        if isinstance(result, Diagnostic):
            self.found.append(replace(result, span=at.span) if at is not None else result)
            return None
        return result

    def _std(self, name: str) -> Scope | None:
        key = "std/" + name.removeprefix("std/").removesuffix(".task")
        if key not in self.loaded:
            text = std.text(name)
            self.loaded[key] = None
            if text is not None:
                self.loaded[key] = self._scope(Source(f"<{key}.task>", text))
        return self.loaded[key]

    def _scope(self, source: Source, main: bool = False) -> Scope:
        file, syntax = parse(source)
        items, shapes = check_file(file, is_whole=not syntax)
        self.found += [*syntax, *shapes]
        partial = bool(syntax or shapes)
        scope = Scope(source, broken=_names_in(source) if partial else frozenset(), is_partial=partial)
        self._edition(source, items, has_syntax=bool(syntax))
        for item in items:
            if item.word.text == "import":
                self._import(item, scope)
            elif item.word.text in DECLARING:
                self._declare(item, scope)
        if main:
            self.main_items = items
        return scope

    def _edition(self, source: Source, items: tuple[Item, ...], has_syntax: bool) -> None:
        item = next((i for i in items if i.word.text == "edition"), None)
        if item is None:
            if not has_syntax or not re.search(r"^\s*edition\b", source.text, re.M):
                self.found.append(error("T107", "the file does not say its edition", Span(source, 0, 0),
                                        help="begin the file with `edition 1`"))
            return
        if not (isinstance(item.value, Num) and item.value.value in EDITIONS and not item.value.unit):
            self.found.append(error("T107", "this version knows only edition 1", item.span,
                                    help="write `edition 1`"))

    def _declare(self, item: Item, scope: Scope) -> None:
        assert item.name is not None
        earlier = scope.names.get(item.name.text)
        if earlier is not None:
            self.found.append(error("T104", f"`{item.name.text}` is declared twice", item.name.span,
                                    label="again here", labels=(Label(earlier.item.span, "first here"),),
                                    help="give one of them another name"))
            return
        scope.names[item.name.text] = Declaration(item.word.text, item, scope)

    def _import(self, item: Item, scope: Scope) -> None:
        where = item.label if item.label is not None else item.value
        if not isinstance(where, Str) or where.literal is None or item.args is None:
            self.found.append(error("T106", '`import` is written `import "file.task" (name, name)`', item.span,
                                    help="name the file and, in parentheses, what you take from it"))
            return
        other = self._target(where, where.literal)
        if other is None or other.unread:
            scope.broken |= {a.value.name for a in item.args if isinstance(a.value, Ref)}
            return
        for arg in item.args:
            if not isinstance(arg.value, Ref):
                self.found.append(error("T106", "an import lists plain names", arg.span, help="write a name"))
                continue
            self._take(Name(arg.value.span, arg.value.name), other, where.literal, scope)

    def _take(self, name: Name, other: Scope, path: str, scope: Scope) -> None:
        declared = other.names.get(name.text)
        if declared is None:
            guess = did_you_mean(name.text, tuple(other.names))
            scope.broken |= {name.text, guess or name.text}
            if name.text not in other.broken:
                self.found.append(error("T101", f"`{path}` declares no `{name.text}`", name.span,
                                        help=f"did you mean `{guess}`?" if guess else
                                        "it declares " + ", ".join(sorted(other.names))))
        elif scope.names.get(name.text, declared) is not declared:
            self.found.append(error("T104", f"`{name.text}` is declared twice", name.span,
                                    help="remove the import or give the other another name"))
        else:
            scope.names[name.text] = declared

    def _target(self, where: Str, literal: str) -> Scope | None:
        if literal.startswith("std/"):
            scope = self._std(literal)
            if scope is None:
                self.found.append(error("T108", f"the std library has no `{literal}`", where.span,
                                        help='it has "std/task" and "std/python.task"'))
            return scope
        key = PurePosixPath(literal).as_posix()  # `./a.task` is `a.task`
        if key in self.loaded:
            scope = self.loaded[key]
            if scope is None:
                self.found.append(error("T108", f"`{literal}` imports itself, directly or by way of another file",
                                        where.span, help="move what both need into a third file"))
            return scope
        try:
            self.pack.file(literal)  # plain files only: a pipe would never end
            path = self.pack.locate(literal)
        except PackError as problem:
            self.found.append(error("T108", f"cannot import: {problem}", where.span, help=problem.remedy))
            return None
        self.loaded[key] = None
        source = self._read(path, where)
        # A file that cannot be read was reported once: further imports of it find nothing and say nothing.
        self.loaded[key] = self._scope(source) if source is not None else Scope(Source(literal, ""), unread=True)
        return self.loaded[key]


def _names_in(source: Source) -> frozenset[str]:
    """Names that a file with syntax errors probably declares."""
    return frozenset(re.findall(r"^\s*[A-Za-z_]\w*\s+([A-Za-z_]\w*)", source.text, re.M))
