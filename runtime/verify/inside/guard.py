"""What hidden tests may do in the trusted process: start programs only as the candidate, run no code of its."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .drop import CLEAN_ENV, Rights, as_candidate

_REFUSED_CALLS = (
    "system fork forkpty posix_spawn posix_spawnp execv execve execl execle execlp execlpe execvp execvpe "
    "spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe"
).split()
_FILE_CALLS = (
    "open mkdir symlink link chmod chown truncate rename replace remove unlink rmdir listdir scandir utime "
    "mkfifo stat access"
).split()


class Refused(Exception):
    """A hidden test wanted something that would run the candidate's code with the grader's rights."""


def install(rights: Rights, trusted: Sequence[str], is_trusted: Callable[[str], bool], faults: list[str]) -> None:
    """Put all guards in place; they last for the process's life."""
    _guard_programs(rights)
    _guard_files(rights, tuple(t.rstrip("/") for t in trusted))
    _guard_code(is_trusted, faults)


def _guard_programs(rights: Rights) -> None:
    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        """Starts the program as the candidate's user, without the parent's descriptors or environment."""

        def __init__(self, args: Any, *more: Any, **options: Any) -> None:
            if more:
                raise Refused("hidden tests pass the options of subprocess by name")
            for name in ("preexec_fn", "user", "group", "extra_groups", "umask", "pass_fds"):
                options.pop(name, None)
            options["close_fds"] = True
            options.setdefault("stdin", subprocess.DEVNULL)
            if options.get("env") is None:
                options["env"] = {**CLEAN_ENV, **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}}
            super().__init__(args, preexec_fn=rights.dropper(), **options)

    subprocess.Popen = Popen  # type: ignore[misc]
    for name in _REFUSED_CALLS:
        setattr(os, name, _refuser(name))


def _refuser(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refused(f"hidden tests start programs with subprocess, which drops their rights; os.{name} would not")

    return refuse


def _guard_files(rights: Rights, trusted: tuple[str, ...]) -> None:
    """Files outside the trusted folders are opened with the candidate's rights.

    Else a link that the candidate left at `out.txt` would let the test compare the hidden answer with itself.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) or _named_trusted(path, trusted):
                return original(path, *args, **kwargs)
            with as_candidate(rights):
                return original(path, *args, **kwargs)

        return call

    builtins.open = io.open = wrap(io.open)  # type: ignore[assignment]
    for name in _FILE_CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def _named_trusted(path: Any, trusted: tuple[str, ...]) -> bool:
    """Whether the path *as written* lies in a trusted folder: where links lead does not count."""
    try:
        plain = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - as written: `resolve` would follow links
    except (TypeError, OSError):
        return False
    return any(plain == t or plain.startswith(t + "/") for t in trusted)


def _guard_code(is_trusted: Callable[[str], bool], faults: list[str]) -> None:
    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            # Generated code has a made-up name (`<string>`, or none): only that of a real file tells where it is from.
            name = getattr(args[0], "co_filename", "")
            if name.endswith(".py") and not is_trusted(name):
                _refuse(f"running {name} in the grader; import it by name, it then runs as the candidate")
        elif event == "ctypes.dlopen":
            if args[0] and "/" in os.fsdecode(args[0]) and not is_trusted(os.fsdecode(args[0])):
                _refuse(f"loading {args[0]} into the grader; call it from a program run with subprocess")
        elif event == "pickle.find_class":
            _refuse(f"unpickling {args[0]}.{args[1]}: a pickle runs code; compare JSON")

    def _refuse(text: str) -> None:
        faults.append("refused: " + text)
        raise Refused(text)

    sys.addaudithook(audit)
