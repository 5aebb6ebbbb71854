"""The candidate's objects as the hidden tests see them: handles that never decide a comparison.

An object that the candidate defines cannot be data, since its `__eq__`, `__bool__` or `__sub__` would then judge
the candidate's own answer. A handle forwards attribute access, calls, iteration and the like to the child and gets
data back; whatever would hand it the *expected* value and take its word (`==`, `in`, `<` against data, arithmetic that
ends in data, truth) is refused.
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .channel import Channel
from .child import DATA_BUILTINS
from .codec import Garbage, Unsendable

ITEMS = 1_000_000
"""Items that one iteration over a candidate's object may give."""
_RETURNABLE = {n: getattr(builtins, n) for n in DATA_BUILTINS if isinstance(getattr(builtins, n), type)}
_ASKABLE = frozenset(
    f"__{name}__" for name in (
        "name doc version all annotations qualname module len contains getitem iter next eq lt bool call enter exit "
        "init repr str hash wrapped members dataclass_fields slots cause"
    ).split()
)  # fmt: skip
"""The special names that a test may ask for by name."""

_BY_NAME = frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __contains__ __hash__ __init__".split())
"""Of these, the ones that a handle itself has: asked of the candidate only where they are named."""


def askable(name: str) -> bool:
    """Whether an attribute is the candidate's business, and not the interpreter's or the test runner's."""
    return name in _ASKABLE or not name.startswith(("__", "_pytest", "pytestmark", "_g_"))


class OpaqueValue(AssertionError):
    """A test asked the candidate's object for its own verdict."""


class Handle:
    """An object of the candidate's. `sort` is `object`, `class`; `origin` the way to find it again."""

    __slots__ = ("__weakref__", "_g_epoch", "_g_number", "_g_origin", "_g_remote", "_g_sort")

    def __init__(self, remote: Remote, number: int, sort: str) -> None:
        for name, value in (("remote", remote), ("number", number), ("sort", sort), ("origin", None)):
            object.__setattr__(self, "_g_" + name, value)
        object.__setattr__(self, "_g_epoch", remote.channel.epoch)

    def __getattribute__(self, name: str) -> Any:
        # `x == y` finds the methods below; `x.__eq__(y)`, written out, is a test that asks for the candidate's own.
        if name in _BY_NAME:
            return _ask(self, "get", self, name)
        return object.__getattribute__(self, name)

    # -- asked of the child ---------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if not askable(name):
            raise AttributeError(name)
        return _ask(self, "get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", self, name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "del", self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _ask(self, "call", self, list(args), kwargs)

    def __len__(self) -> int:
        return _exact(self, "len", int)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        iterator = _ask(self, "iter", self)
        return _items(self, iterator) if isinstance(iterator, Handle) else iter(iterator)

    def __next__(self) -> Any:
        return _ask(self, "next", self)

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _ask(self, "setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        _ask(self, "delitem", self, key)

    def __str__(self) -> str:
        return _exact(self, "str", str)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        if self._g_remote.stale(self):
            return f"<the candidate's object {self._g_number}>"
        return _exact(self, "repr", str)  # type: ignore[no-any-return]

    def __format__(self, spec: str) -> str:
        return _exact(self, "format", str, spec)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return _exact(self, "int", int)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return _exact(self, "float", float)  # type: ignore[no-any-return]

    def __complex__(self) -> complex:
        return _exact(self, "complex", complex)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return _exact(self, "index", int)  # type: ignore[no-any-return]

    def __round__(self, digits: int | None = None) -> Any:
        return _ask(self, "round", self, digits)

    def __reversed__(self) -> Any:
        return _ask(self, "reversed", self)

    def __enter__(self) -> Any:
        return _ask(self, "enter", self)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # It may know that the block failed, but not swallow it: that may be the test's own assertion.
        known = kind if kind is not None and getattr(builtins, kind.__name__, None) is kind else None
        _ask(self, "exit", self, known, None, None)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Handle) and _ask(self, "isinstance", value, self) is True

    def __subclasscheck__(self, cls: Any) -> bool:
        return isinstance(cls, Handle) and _ask(self, "issubclass", cls, self) is True

    # -- never asked of the child ----------------------------------------------------------------------------------
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise self._g_remote.refused("compare data, not objects the candidate defines (`==` with one of them)")

    def __ne__(self, other: object) -> bool:
        if self is other:
            return False
        raise self._g_remote.refused("compare data, not objects the candidate defines (`!=` with one of them)")

    def __bool__(self) -> bool:
        raise self._g_remote.refused("the truth of an object the candidate defines is no evidence; compare data")

    def __contains__(self, item: object) -> bool:
        raise self._g_remote.refused(
            "`in` would take the candidate's word for it; compare `list(…)`, or call `__contains__` by name"
        )

    def __mro_entries__(self, bases: Any) -> Any:
        raise self._g_remote.refused("a hidden test cannot derive from a class the candidate defines")


def _ordering(name: str) -> Callable[[Handle, Any], Any]:
    def compare(self: Handle, other: Any) -> Any:
        if not isinstance(other, Handle):
            raise self._g_remote.refused("compare data, not objects the candidate defines (`<`, `>` with data)")
        return _ask(self, name, self, other)

    return compare


def _arithmetic(name: str, swapped: bool) -> Callable[..., Any]:
    def operate(self: Handle, *others: Any) -> Any:
        operands = (*others, self) if swapped else (self, *others)
        result = _ask(self, name, *operands)
        # `abs(result - expected) < 1e-9`: the child sees the expected value and would answer 0.
        if not isinstance(result, Handle):
            raise self._g_remote.refused("arithmetic on an object the candidate defines gave data; compare data")
        return result

    return operate


for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _ordering(_name))
for _name in ("abs", "neg", "pos", "invert"):
    setattr(Handle, f"__{_name}__", _arithmetic(_name, swapped=False))
for _name in "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift divmod".split():
    setattr(Handle, f"__{_name.rstrip('_')}__", _arithmetic(_name, swapped=False))
    setattr(Handle, f"__r{_name.rstrip('_')}__", _arithmetic(_name, swapped=True))


def _ask(handle: Handle, function: str, *args: Any) -> Any:
    result = handle._g_remote.channel.request(function, *args)
    if function == "get" and isinstance(result, Handle) and handle._g_origin is not None:
        object.__setattr__(result, "_g_origin", (*handle._g_origin, args[1]))
    return result


def _exact(handle: Handle, function: str, kind: type, *args: Any) -> Any:
    value = _ask(handle, function, handle, *args)
    if type(value) is not kind:
        raise handle._g_remote.refused(f"{function}() of the candidate's object is no {kind.__name__}")
    return value


def _items(handle: Handle, iterator: Handle) -> Iterator[Any]:
    for _ in range(ITEMS):
        try:
            item = _ask(handle, "next", iterator)
        except StopIteration:
            return
        yield item
    raise handle._g_remote.refused(f"the candidate's object gave more than {ITEMS} items")


class CandidateError(Exception):
    """An exception of the candidate's that is no ordinary one (KeyboardInterrupt, a test runner's skip …)."""


class Remote:
    """Makes handles and exceptions out of what the channel brings, and writes them into requests."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        channel.opaque, channel.unopaque = self.write, self.read
        self.handles: weakref.WeakValueDictionary[tuple[int, int], Handle] = weakref.WeakValueDictionary()
        self.classes: dict[tuple[int, int], type[BaseException]] = {}
        self.modules: Callable[[str], Any] = lambda name: self.channel.unopaque("lost", [name])

    def refused(self, text: str) -> OpaqueValue:
        """Record that a test asked for the candidate's own verdict: the test fails even if it hides this."""
        self.channel.faults.append(text)
        return OpaqueValue(text)

    def stale(self, handle: Handle) -> bool:
        """Whether the process that held the object is gone."""
        return self.channel.process is None or handle._g_epoch != self.channel.epoch

    # -- writing ---------------------------------------------------------------------------------------------------
    def write(self, value: Any) -> Any:
        """The tree of what a test passes that is no data."""
        if isinstance(value, Handle):
            return ["object", self._number(value)]
        name = getattr(value, "__name__", None)
        if hasattr(type(value), "_g_is_module"):
            return ["module", name]
        if type(name) is str and getattr(builtins, name, None) is value:
            return ["builtin", name]
        if isinstance(value, type) and issubclass(value, BaseException):
            for (epoch, number), cls in self.classes.items():
                if cls is value and epoch == self.channel.epoch:
                    return ["object", number]
        if callable(value):
            return ["callback", self.channel.keep(value)]
        if hasattr(value, "__next__"):
            return ["iterator", self.channel.keep(_stepper(value))]
        raise Unsendable(f"a {type(value).__name__} is no data; pass plain data or a function")

    def _number(self, handle: Handle) -> int:
        if not self.stale(handle):
            return int(handle._g_number)
        if handle._g_origin is None:
            raise self.channel.fault("the candidate's process that held this object has ended")
        module, *path = handle._g_origin
        found: Any = self.channel.request("import", module)
        for name in path:
            found = self.channel.request("get", found, name)
        if not isinstance(found, Handle):
            raise self.channel.fault("a name of the candidate's module no longer means the same")
        object.__setattr__(handle, "_g_number", found._g_number)
        object.__setattr__(handle, "_g_epoch", self.channel.epoch)
        return int(found._g_number)

    # -- reading ---------------------------------------------------------------------------------------------------
    def read(self, tag: str, rest: list[Any]) -> Any:
        """What a tag of the child means; raises Garbage."""
        if tag == "object":
            return self._object(rest)
        if tag == "builtin":
            return _RETURNABLE[rest[0]] if rest[0] in _RETURNABLE else self._no_builtin(rest[0])
        if tag == "module" and type(rest[0]) is str:
            return self.modules(rest[0])
        if tag == "exception":
            return self._exception_class(rest, 20)
        if tag == "failure":
            return self._failure(rest[0])
        raise Garbage(f"an unknown tag {tag[:40]}")

    def _no_builtin(self, name: Any) -> Any:
        raise Garbage(f"the builtin {str(name)[:40]}")

    def _object(self, rest: list[Any]) -> Any:
        number, sort = rest
        if type(number) is not int or number <= 0 or sort not in ("object", "class", "coroutine"):
            raise Garbage("a malformed object")
        handle = self.handles.get((self.channel.epoch, number))
        if handle is None:
            handle = Handle(self, number, sort)
            self.handles[self.channel.epoch, number] = handle
        return _drive(handle) if sort == "coroutine" else handle

    def _exception_class(self, rest: list[Any], depth: int) -> type[BaseException]:
        number, name, bases = rest
        if type(number) is not int or type(name) is not str or type(bases) is not list or depth <= 0:
            raise Garbage("a malformed exception class")
        if number == 0:
            return _builtin_exception(name)
        key = (self.channel.epoch, number)
        if key not in self.classes:
            parents = tuple(dict.fromkeys(self._exception_class(b[1:], depth - 1) for b in bases))
            body = {"__str__": _text_of, "__getattr__": _attribute_of, "__module__": "candidate", "_g_text": ""}
            try:
                self.classes[key] = type(name, parents or (CandidateError,), dict(body))
            except (TypeError, ValueError):
                self.classes[key] = type("CandidateDefined", (CandidateError,), dict(body))
        return self.classes[key]

    def _failure(self, tree: Any) -> BaseException:
        from .codec import Reader

        try:
            cls = self._exception_class(tree["c"][1:], 20)
            text, number = tree["t"], tree["h"]
            args = Reader(_no_objects).read(tree["a"])
            if type(text) is not str or type(number) is not int or type(args) not in (tuple, type(None)):
                raise Garbage("a malformed exception")
        except (Garbage, KeyError, TypeError, ValueError, IndexError) as error:
            return self.channel.fault(f"the candidate's process sent garbage: {error}")
        if cls is CandidateError:
            return CandidateError(f"{tree['c'][2]}: {text}")
        error_ = _made(cls, args, text)
        if hasattr(cls, "_g_text"):
            error_.__dict__.update(_g_text=text, _g_handle=self._object([number, "object"]))
        return error_


def _no_objects(tag: str, rest: list[Any]) -> Any:
    raise Garbage(tag)


def _made(cls: type[BaseException], args: tuple[Any, ...] | None, text: str) -> BaseException:
    try:
        made = cls(*args) if args is not None else cls(text)
        if hasattr(cls, "_g_text") or str(made) == text:
            return made
    except Exception:  # noqa: BLE001 - arguments that the class does not take
        pass
    for attempt in ((text,), ()):
        try:
            return cls(*attempt)
        except Exception:  # noqa: BLE001 - UnicodeDecodeError and the like want five arguments
            continue
    return CandidateError(f"{cls.__name__}: {text}")


def _builtin_exception(name: str) -> type[BaseException]:
    cls = getattr(builtins, name, None)
    if not isinstance(cls, type) or not issubclass(cls, BaseException):
        raise Garbage("an unknown exception class")
    # Only `SystemExit` of those that are no `Exception` may stop a test; KeyboardInterrupt would stop the session.
    return cls if issubclass(cls, Exception) or cls is SystemExit else CandidateError


def _text_of(self: Any) -> str:
    return str(self.__dict__.get("_g_text", ""))


def _attribute_of(self: Any, name: str) -> Any:
    handle = self.__dict__.get("_g_handle")
    if handle is None or not askable(name):
        raise AttributeError(name)
    return getattr(handle, name)


async def _drive(handle: Handle) -> Any:
    return _ask(handle, "await", handle)


def _stepper(iterator: Any) -> Callable[[], tuple[bool, Any]]:
    def step() -> tuple[bool, Any]:
        for item in iterator:
            return True, item
        return False, None

    return step
