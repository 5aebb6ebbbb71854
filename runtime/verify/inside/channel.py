"""The parent's end of the channel to the candidate's process: requests with deadlines, faults that stick."""

from __future__ import annotations

import builtins
import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .codec import FRAME, Garbage, Reader, Unsendable, Writer, dump, load
from .drop import CLEAN_ENV, Rights, end_all

_Popen = subprocess.Popen
CALLBACKS = 10_000


class CandidateFault(BaseException):
    """The candidate's process died, ran out of time or sent garbage.

    Not an Exception: a test that expects "some exception" must not be satisfied by it.
    """


class Channel:
    """One candidate process at a time, started when first needed and again after it died.

    `source` is the child's program text, `roots` the folders its modules are imported from. Every fault is
    appended to `faults`, where the test runner finds it even if the test swallowed the exception.
    """

    def __init__(
        self, source: str, rights: Rights, *, roots: list[str], workdir: str, call_wall: float, end: float,
        starts: int = 8,
    ) -> None:  # fmt: skip
        self.source, self.rights, self.roots, self.workdir = source, rights, roots, workdir
        self.call_wall, self.end, self.starts = call_wall, end, starts
        self.faults: list[str] = []
        self.epoch = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.sock: socket.socket | None = None
        self.serial = 0
        self.callbacks: list[Callable[..., Any]] = []
        self.told: dict[str, Any] = {}
        self.opaque: Callable[[Any], Any] = _refuse
        self.unopaque: Callable[[str, list[Any]], Any] = _refuse_tag

    # -- life -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the candidate's process, if none runs."""
        if self.process is not None:
            return
        if self.starts <= 0:
            raise self.fault("the candidate's process died too often")
        self.starts -= 1
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = _Popen(
                [sys.executable, "-I", "-B", "-c", self.source, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.workdir,
                env=CLEAN_ENV, pass_fds=(theirs.fileno(),), start_new_session=True, preexec_fn=self.rights.dropper(),
            )  # fmt: skip
        self.sock = ours
        self.epoch += 1
        self.callbacks.clear()
        self.told = {"env": CLEAN_ENV, "cwd": self.workdir}

    def stop(self) -> None:
        """End the candidate's process and every other one of its user."""
        if self.sock is not None:
            self.sock.close()
        process, self.process, self.sock = self.process, None, None
        end_all(self.rights.uid)
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)

    def fault(self, text: str) -> CandidateFault:
        """Record a fault of the candidate, end its process, and give the exception to raise."""
        self.faults.append(text)
        self.stop()
        return CandidateFault(text)

    # -- requests ---------------------------------------------------------------------------------------------
    def request(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Have the child do `function(*args, **kwargs)`: its value, or its exception raised here.

        Raises CandidateFault when the process dies, is late or answers garbage, TypeError when an argument is
        no data.
        """
        self.start()
        writer = Writer(self.opaque, number=True)
        tree = writer.write(args)
        keywords = writer.write(kwargs) if kwargs else None
        if self.process is None:  # writing an argument may itself have asked the child
            raise self.fault("the candidate's process is gone")
        self.serial += 1
        message = {"f": function, "n": self.serial, "a": tree, "k": keywords, **self._surroundings()}
        until = min(time.monotonic() + self.call_wall, self.end)
        self._send(message, until)
        return self._result(self._answer(self.serial, until), writer.seen)

    def _surroundings(self) -> dict[str, Any]:
        # What a test sets with monkeypatch.setenv, chdir or sys.path holds for the candidate's process as well.
        now: dict[str, Any] = {"env": {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}}
        now["roots"] = self.roots
        with contextlib.suppress(OSError):
            now["cwd"] = os.getcwd()  # noqa: PTH109 - a string, for the message
        changed = {k: v for k, v in now.items() if self.told.get(k) != v}
        self.told.update({k: list(v) if k == "roots" else v for k, v in changed.items()})
        return changed

    def _answer(self, serial: int, until: float) -> dict[str, Any]:
        while True:
            message = self._receive(until)
            if "cb" in message:
                self._send(self._call_back(message), until)
            elif message.get("n") == serial:
                return message
            else:
                raise self.fault("the candidate's process sent an answer to no question")

    def _result(self, message: dict[str, Any], sent: dict[int, Any]) -> Any:
        for key, stream in (("o", sys.stdout), ("s", sys.stderr)):
            text = message.get(key)
            if type(text) is str and text:
                stream.write(text.encode("utf-8", "replace").decode())
        reader = Reader(self.unopaque, dict(sent))
        try:
            for number, tree in message.get("m") or ():
                reader.refill(sent[number], tree)
            if "e" in message:
                failure = message["e"]
            else:
                return reader.read(message["v"])
        except (Garbage, KeyError, TypeError, ValueError) as error:
            raise self.fault(f"the candidate's process sent garbage: {error}") from None
        raise self.unopaque("failure", [failure])

    def _call_back(self, message: dict[str, Any]) -> dict[str, Any]:
        number = message["cb"]
        if type(number) is not int or not 0 <= number < len(self.callbacks):
            raise self.fault("the candidate's process called a function that no test passed to it")
        try:
            reader = Reader(self.unopaque)
            args, kwargs = reader.read(message.get("a")), reader.read(message.get("k"))
            result = self.callbacks[number](*args, **kwargs)
            return {"return": Writer(self.opaque).write(result)}
        except Garbage as error:
            raise self.fault(f"the candidate's process sent garbage: {error}") from None
        except Exception as error:  # noqa: BLE001 - what the test's function raises goes to the candidate
            known = [c.__name__ for c in type(error).__mro__ if getattr(builtins, c.__name__, None) is c]
            return {"return": None, "raise": [known[0], str(error)]}
        except BaseException:
            # The test ends in the middle of a call: what the child would still answer must not reach the next one.
            self.stop()
            raise

    def keep(self, function: Callable[..., Any]) -> int:
        """The number by which the child may call a function of the test's."""
        if len(self.callbacks) >= CALLBACKS:
            raise TypeError("too many functions were passed to the candidate")
        self.callbacks.append(function)
        return len(self.callbacks) - 1

    # -- bytes ------------------------------------------------------------------------------------------------
    def _send(self, message: dict[str, Any], until: float) -> None:
        try:
            data = dump(message)
        except Unsendable as error:
            raise TypeError(f"arguments for candidate code: {error}") from None
        view = memoryview(len(data).to_bytes(4, "big") + data)
        while view:
            sock = self._ready(select.POLLOUT, until)
            try:
                view = view[sock.send(view, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self.fault(self._how_it_died()) from None

    def _receive(self, until: float) -> dict[str, Any]:
        size = int.from_bytes(self._exactly(4, until), "big")
        if size > FRAME:
            raise self.fault(f"the candidate's process sent garbage: a message of {size} bytes")
        try:
            message = load(self._exactly(size, until))
        except Garbage as error:
            raise self.fault(f"the candidate's process sent garbage: {error}") from None
        if type(message) is not dict:
            raise self.fault("the candidate's process sent garbage: no message")
        return message

    def _exactly(self, count: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            sock = self._ready(select.POLLIN, until)
            try:
                part = sock.recv(min(count - len(data), 1 << 20), socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if not part:
                raise self.fault(self._how_it_died())
            data += part
        return bytes(data)

    def _ready(self, what: int, until: float) -> socket.socket:
        if self.sock is None:
            raise self.fault("the candidate's process is gone")
        poll = select.poll()
        poll.register(self.sock, what)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                late = "all its time" if time.monotonic() >= self.end else f"the {self.call_wall:g} s of a call"
                raise self.fault(f"the candidate's code took more than {late}")
            if poll.poll(min(left, 1.0) * 1000):
                return self.sock

    def _how_it_died(self) -> str:
        process = self.process
        try:
            code = process.wait(0.5) if process is not None else 0
        except subprocess.TimeoutExpired:
            return "the candidate's process closed its channel"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"the candidate's process ended {how} while its code ran"


def _refuse(value: Any) -> Any:
    raise Unsendable(f"a {type(value).__name__} is no data")


def _refuse_tag(tag: str, rest: list[Any]) -> Any:
    raise Garbage(tag)
