"""The candidate's process: runs as uid 1000, imports the candidate's code and does what the parent asks.

It is started with its own source (after that of `codec`) as the program text, so it needs no file. Nothing here
is trusted: candidate code may replace any of it, and then only changes what the candidate itself answers.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ != "__main__":  # as the program text of the child, `codec` has been executed just above
    from .codec import Garbage, Reader, Unsendable, Writer, dump, load

OUTPUT = 1 << 20
"""Characters of printed text that go back with one answer."""
DATA_BUILTINS = (
    "int float str bytes bytearray list dict set frozenset tuple bool complex object type "
    "len abs min max sum sorted repr ord chr hash any all round reversed enumerate zip map filter range"
).split()


class Printed(io.TextIOBase):
    """`sys.stdout` of the candidate: bounded, sent back with each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.left = OUTPUT

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Keep what still fits."""
        if self.left > 0:
            self.parts.append(str(text)[: self.left])
            self.left -= len(text)
        return len(text)

    def take(self) -> str:
        """What was printed since the last answer."""
        text, self.parts, self.left = "".join(self.parts), [], OUTPUT
        return text


class Child:
    """Serves one parent over one descriptor."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.out, self.err = Printed(), Printed()
        sys.stdout, sys.stderr = self.out, self.err

    # -- messages ---------------------------------------------------------------------------------------------
    def receive(self) -> Any:
        """The parent's next message; ends the process when the parent is gone."""
        return load(self._exactly(int.from_bytes(self._exactly(4), "big")))

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self.channel, min(count, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, tree: Any) -> None:
        """Write one message."""
        data = dump(tree)
        data = len(data).to_bytes(4, "big") + data
        while data:
            data = data[os.write(self.channel, data) :]

    def serve(self) -> Any:
        """Answer requests until the parent returns from the innermost call-back."""
        while True:
            message = self.receive()
            if "return" in message:
                return message
            try:
                self.send(self.answer(message))
            except Unsendable as error:
                self.send({"n": message["n"], "e": self.failure(ValueError(str(error)))})

    def answer(self, message: Any) -> Any:
        """Do what one message asks."""
        self._surroundings(message)
        values: dict[int, Any] = {}
        writer = Writer(self.opaque)
        reply: dict[str, Any] = {"n": message["n"]}
        before: dict[int, Any] = {}
        try:
            reader = Reader(self.unopaque, values)
            args, kwargs = reader.read(message["a"]), reader.read(message.get("k"))
            known = {id(v): n for n, v in values.items()}
            before = {n: Writer(self.opaque, known).content(v) for n, v in values.items()}
            result = FUNCTIONS[message["f"]](*args, **(kwargs or {}))
            writer.known = known
            reply["v"] = writer.write(result)
        except BaseException as error:  # noqa: BLE001 - SystemExit and all: the parent decides what they mean
            reply["e"] = self.failure(error)
        after = {n: Writer(self.opaque, {id(v): n for n, v in values.items()}).content(values[n]) for n in before}
        reply["m"] = [[n, tree] for n, tree in after.items() if tree != before[n]]
        reply["o"], reply["s"] = self.out.take(), self.err.take()
        return reply

    def _surroundings(self, message: Any) -> None:
        if "env" in message:
            os.environ.clear()
            os.environ.update(message["env"])
        if "cwd" in message:
            with contextlib.suppress(OSError):  # a folder of the parent's own: the candidate stays where it is
                os.chdir(message["cwd"])
        roots = message.get("roots", [])
        sys.path[:0] = [root for root in roots if root not in sys.path]

    # -- what is no data --------------------------------------------------------------------------------------
    def opaque(self, value: Any) -> Any:
        """An object as a number (the same object always the same one), a builtin as its name."""
        name = getattr(value, "__name__", None)
        if name in DATA_BUILTINS and getattr(sys.modules["builtins"], name, None) is value:
            return ["builtin", name]
        if isinstance(value, type) and issubclass(value, BaseException):
            return self.exception_class(value)
        if isinstance(value, type(sys)):
            return ["module", value.__name__]
        return ["object", self.number(value), self._sort(value)]

    def _sort(self, value: Any) -> str:
        flags = type(value).__dict__
        return "coroutine" if "cr_await" in flags else "class" if isinstance(value, type) else "object"

    def number(self, value: Any) -> int:
        """The number of an object, which is kept alive from now on: numbers are never used twice."""
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects) + 1
            self.objects[number] = value
        return number

    def exception_class(self, cls: type[BaseException]) -> Any:
        """An exception class: a builtin by name, one of the candidate's with its bases."""
        if getattr(sys.modules["builtins"], cls.__name__, None) is cls:
            return ["exception", 0, cls.__name__, []]
        bases = [self.exception_class(b) for b in cls.__bases__ if issubclass(b, BaseException)]
        return ["exception", self.number(cls), cls.__name__, bases]

    def unopaque(self, tag: str, rest: list[Any]) -> Any:
        """What the parent means by a tag that is no data."""
        if tag == "object":
            return self.objects[rest[0]]
        if tag == "module":
            return importlib.import_module(rest[0])
        if tag == "builtin":
            return getattr(sys.modules["builtins"], rest[0])
        if tag == "callback":
            return self.callback(rest[0])
        if tag == "iterator":
            return self.iterator(rest[0])
        raise Garbage(tag)

    def callback(self, number: int) -> Callable[..., Any]:
        """A function of the test's, called over the channel."""

        def call_test(*args: Any, **kwargs: Any) -> Any:
            writer = Writer(self.opaque)
            self.send({"cb": number, "a": writer.write(args), "k": writer.write(kwargs)})
            message = self.serve()
            if "raise" in message:
                name, text = message["raise"]
                raise getattr(sys.modules["builtins"], name)(text)
            return Reader(self.unopaque).read(message["return"])

        return call_test

    def iterator(self, number: int) -> Any:
        """An iterator of the test's: its call-back gives (True, item) or (False, None)."""
        step = self.callback(number)
        while True:
            more, item = step()
            if not more:
                return
            yield item

    def failure(self, error: BaseException) -> Any:
        """An exception as data: its class, its arguments where they are data, its text, the object itself."""
        try:
            given = tuple(error.args)
            if isinstance(error, OSError) and len(given) == 2 and isinstance(error.filename, str):
                given = (*given, error.filename)
            args: Any = Writer(_no_objects).write(given)
        except Exception:  # noqa: BLE001 - arguments that cannot cross are left out
            args = None
        try:
            text = str(error)
        except Exception as again:  # noqa: BLE001 - the candidate's own __str__ may raise
            text = f"<{type(again).__name__} in __str__>"
        return {"c": self.exception_class(type(error)), "a": args, "t": text[:100_000], "h": self.number(error)}


def _no_objects(value: Any) -> Any:
    raise Unsendable(f"a {type(value).__name__} is no data")


def _import_path(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_replaced: dict[tuple[str, str], Any] = {}


def _set(target: Any, name: str, value: Any) -> None:
    """Set an attribute; what a test replaces in a module is kept, see `_delete`."""
    if isinstance(target, type(sys)):
        key = (target.__name__, name)
        if key not in _replaced and name in target.__dict__:
            _replaced[key] = target.__dict__[name]
        elif key in _replaced and _replaced[key] is value:
            del _replaced[key]
    setattr(target, name, value)


def _delete(target: Any, name: str) -> None:
    """Delete an attribute; one that a test replaced comes back: so pytest's and mock's patches undo themselves on an
    object in whose own `__dict__` (which is the parent's) they found nothing."""
    key = (getattr(target, "__name__", ""), name)
    if isinstance(target, type(sys)) and key in _replaced:
        setattr(target, name, _replaced.pop(key))
    else:
        delattr(target, name)


def _run_coroutine(value: Any) -> Any:
    return importlib.import_module("asyncio").run(value)


def _public(value: Any) -> list[str]:
    names = getattr(value, "__all__", None)
    return list(names) if names is not None else [n for n in dir(value) if not n.startswith("_")]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "import": importlib.import_module, "import_path": _import_path, "reload": importlib.reload,
    "get": getattr, "set": _set, "del": _delete, "dir": dir, "public": _public,
    "call": lambda function, args, kwargs: function(*args, **kwargs),
    "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "format": format, "int": int,
    "float": float, "complex": complex, "isinstance": isinstance, "issubclass": issubclass, "round": round,
    "reversed": reversed, "await": _run_coroutine,
    "enter": lambda value: type(value).__enter__(value),
    "exit": lambda value, *what: bool(type(value).__exit__(value, *what)),
    **{name: getattr(operator, name) for name in (
        "getitem setitem delitem index abs neg pos invert lt le gt ge add sub mul truediv floordiv mod pow "
        "matmul and_ or_ xor lshift rshift"
    ).split()},
    "divmod": divmod,
}  # fmt: skip


def main() -> None:
    """Serve the parent whose channel is the descriptor named in the arguments."""
    child = Child(int(sys.argv[1]))
    del sys.argv[1:]
    # The candidate's `__main__` must not be this module: a fresh one, as under any other test runner.
    sys.modules["__main__"] = type(sys)("__main__")
    child.serve()


if __name__ == "__main__":
    main()
