"""Writes and collects files inside a sandbox. Sent as text to the image's own Python (3.8 or newer): standard
library only, nothing imported from this project, and no name of a path is ever followed through a link
unless the caller asked for an agent's own rights.

Protocol: stdin is one line of JSON, then file contents; stdout is one line of JSON, then file contents.
"""

# Runs on an image's Python, alone: plain os calls with folder descriptors are the point of it.
# ruff: noqa: PTH103, PTH120, PTH208, UP031
from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

CHUNK = 1 << 20
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | NO_LINK
MAX_DEPTH = 64
MAX_ENTRIES = 200000
MAX_REJECTED = 100
SECONDS = 30.0


class Broken(Exception):
    """The tree breaks the bounds of a collection."""


def main() -> None:
    """Serve one request."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    asked = json.loads(source.readline())
    if asked["do"] == "put":
        sink.write(json.dumps(put(asked, source)).encode() + b"\n")
    else:
        collect(asked, sink)
    sink.flush()
    # An answer may be lost where the request is not read to its end.
    while source.read(CHUNK):
        pass


def put(asked: Any, source: BinaryIO) -> Any:
    """Write files in order; stops at the first that the sandbox's rules refuse and says which."""
    for item in asked["files"]:
        try:
            if asked["root"]:
                put_over(item, asked, source)
            else:
                put_plain(item, source)
        except OSError as error:
            return {"errno": error.errno, "path": item["path"]}
    return {"errno": 0}


def put_plain(item: Any, source: BinaryIO) -> None:
    """Write one file with nothing but the caller's rights."""
    # O_NONBLOCK: opening a fifo must fail, not wait for a reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(item["path"], flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(item["path"]), exist_ok=True)
        fd = os.open(item["path"], flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a regular file")
        copy_in(fd, item["size"], source)
        os.fchmod(fd, item["mode"])
    finally:
        os.close(fd)


def put_over(item: Any, asked: Any, source: BinaryIO) -> None:
    """Write one file as uid 0; whatever lies in the way is replaced, never followed."""
    path = item["path"]
    root = max((m for m in asked["mounts"] if path.startswith(m + "/")), key=len, default=None)
    if root is None:
        raise OSError(30, "outside the writable folders")
    parts = path[len(root) + 1:].split("/")
    folder = os.open(root, FOLDER)
    try:
        if asked["read_only"] and root != asked["grader"]:
            # Entries of uid 0 in a sticky folder of uid 0 can be neither renamed nor deleted by others.
            os.fchown(folder, 0, 0)
            os.fchmod(folder, 0o1777)
        for part in parts[:-1]:
            below = enter(folder, part, asked["read_only"])
            os.close(folder)
            folder = below
        clear(folder, parts[-1])
        fd = os.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600, dir_fd=folder)
        try:
            copy_in(fd, item["size"], source)
            os.fchmod(fd, (item["mode"] & 0o555) | 0o444 if asked["read_only"] else item["mode"])
        finally:
            os.close(fd)
    finally:
        os.close(folder)


def enter(folder: int, part: str, read_only: bool) -> int:
    """Open a folder below, making it, and replacing what is no folder."""
    try:
        found = os.stat(part, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(part, dir_fd=folder)
            raise FileNotFoundError
    except FileNotFoundError:
        os.mkdir(part, 0o755, dir_fd=folder)
    fd = os.open(part, FOLDER, dir_fd=folder)
    if read_only:
        os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o755)
    return fd


def clear(folder: int, name: str) -> None:
    """Remove whatever has this name."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    fd = os.open(name, FOLDER, dir_fd=folder)
    try:
        for entry in os.listdir(fd):
            clear(fd, entry)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=folder)


def copy_in(fd: int, size: int, source: BinaryIO) -> None:
    """Copy `size` bytes of the request into a file."""
    while size:
        data = source.read(min(size, CHUNK))
        if not data:
            raise OSError(5, "the request ended early")
        size -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]


def collect(asked: Any, sink: BinaryIO) -> None:
    """Write a header line, then each file as a JSON line and its bytes, in path order."""
    rejected: list[str] = []
    limits = asked["limits"]
    problem = None
    names: list[str] = []
    try:
        names = sorted(find(asked["globs"], limits["files"], rejected))
    except Broken as error:
        problem = str(error)
    total = 0
    for name in names:
        try:
            total = send(name, total, limits, rejected, sink)
        except Broken as error:
            problem = str(error)
            break
        except OSError as error:
            rejected.append("%s: %s" % (name, error.strerror))
    sink.write(json.dumps({"end": True, "problem": problem, "rejected": rejected[:MAX_REJECTED]}).encode() + b"\n")


def send(name: str, total: int, limits: Any, rejected: list[str], sink: BinaryIO) -> int:
    """Send one file; returns the bytes sent so far."""
    parts = name.strip("/").split("/")
    folder = open_folder(parts[:-1])
    try:
        # O_NONBLOCK: a fifo that took the file's place must not block us.
        fd = os.open(parts[-1], os.O_RDONLY | os.O_NONBLOCK | NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            rejected.append("%s: not a regular file" % name)
            return total
        if found.st_size > limits["file_bytes"]:
            raise Broken("%s has %d bytes; one file may have %d" % (name, found.st_size, limits["file_bytes"]))
        if total + found.st_size > limits["total_bytes"]:
            raise Broken("the files have more than %d bytes in all" % limits["total_bytes"])
        data = read_all(fd, found.st_size)
        mode = stat.S_IMODE(found.st_mode) & 0o777
        sink.write(json.dumps({"path": name, "size": len(data), "mode": mode}).encode() + b"\n" + data)
        return total + len(data)
    finally:
        os.close(fd)


def read_all(fd: int, size: int) -> bytes:
    """At most `size` bytes: a file that grows meanwhile is cut at what it was."""
    parts = []
    while size:
        data = os.read(fd, min(size, CHUNK))
        if not data:
            break
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def open_folder(parts: list[str]) -> int:
    """Open a folder from the root, link by no link."""
    fd = os.open("/", FOLDER)
    for part in parts:
        try:
            below = os.open(part, FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


class Search:
    """What one collection looks for, with the bounds of its walk and the list of what it passed over."""

    def __init__(self, rejected: list[str]) -> None:
        self.rejected = rejected
        self.entries = MAX_ENTRIES
        self.end = time.monotonic() + SECONDS
        self.pattern: Any = None
        self.deep = False

    def reject(self, path: str, reason: str) -> None:
        """Note what was passed over, up to a bound; names that are not text are written with escapes."""
        if len(self.rejected) < MAX_REJECTED:
            self.rejected.append(ascii(path)[1:-1] + ": " + reason)

    def count(self) -> None:
        """Raise Broken when the tree is too large to walk."""
        self.entries -= 1
        if self.entries < 0 or time.monotonic() > self.end:
            raise Broken("the tree has more than %d entries or takes too long to walk" % MAX_ENTRIES)


def find(globs: list[str], most: int, rejected: list[str]) -> set[str]:
    """Paths of regular files that match, found without following links. Raises Broken."""
    found: set[str] = set()
    search = Search(rejected)
    for glob in globs:
        base, search.pattern = literal_base(glob), re.compile(to_regex(glob), re.S)
        search.deep = "**" in glob.split("/")
        depth = MAX_DEPTH if search.deep else glob.count("/") - base.rstrip("/").count("/")
        try:
            fd = open_folder([part for part in base.split("/") if part])
        except OSError as error:
            if error.errno != 2:
                search.reject(base, str(error.strerror))
            continue
        for path in walk(fd, base.rstrip("/"), depth, search):
            found.add(path)
            if len(found) > most:
                raise Broken("more than %d files match" % most)
    return found


def walk(folder: int, base: str, depth: int, search: Search) -> Iterator[str]:
    """Matching regular files below an open folder, which this closes."""
    below = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                search.count()
                path = base + "/" + entry.name
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif search.pattern.fullmatch(path):
                    reason = unfit(entry, path)
                    if reason is None:
                        yield path
                    else:
                        search.reject(path, reason)
        for name in below:
            if depth <= 1:
                if search.deep:
                    search.reject(base + "/" + name, "too deep")
                continue
            try:
                fd = os.open(name, FOLDER, dir_fd=folder)
            except OSError as error:
                search.reject(base + "/" + name, str(error.strerror))
                continue
            yield from walk(fd, base + "/" + name, depth - 1, search)
    finally:
        os.close(folder)


def unfit(entry: Any, path: str) -> str | None:
    """Why a matching entry is passed over."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if entry.is_symlink():
        return "a symbolic link"
    return None if entry.is_file(follow_symlinks=False) else "not a regular file"


def literal_base(glob: str) -> str:
    """The folder above the first component with a wildcard (or above the last component)."""
    kept = []
    for part in glob.split("/")[:-1]:
        if any(char in part for char in "*?["):
            break
        kept.append(part)
    return "/".join(kept) or "/"


def to_regex(glob: str) -> str:
    """`**` as a whole component crosses folders; `*`, `?` and `[…]` do not."""
    out, parts = "", glob.split("/")[1:]
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += "/.+" if last else "(?:/[^/]+)*"
            continue
        out += "/" + re.sub(r"\[(\!?)((?:\\.|[^\]])+)\]|\*+|\?|.", piece, part, flags=re.S)
    return out


def piece(match: Any) -> str:
    """One element of a component."""
    text = str(match.group(0))
    if text[0] == "*":
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if text[0] == "[" and len(text) > 1:
        body = str(match.group(2)).replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("/", "")
        return "(?!/)[" + ("^" if match.group(1) else "") + body + "]"
    return re.escape(text)


if __name__ == "__main__":
    main()
