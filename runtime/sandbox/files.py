"""The host's half of writing and collecting files: requests to, and a checked reading of, `inside_files.py`."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.sandbox import (
    Artefact,
    Artefacts,
    CollectLimits,
    PutFile,
    SandboxFault,
    SandboxSpec,
)
from guerdon.runtime.sandbox.spec import GRADER, SHM, mounts

PROGRAM = Path(__file__).with_name("inside_files.py").read_text()
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
HEADER_BYTES = 4096
"""What one file's header line may add to a collection's output."""
END_BYTES = 2 * 1024 * 1024


def pythons(spec: SandboxSpec) -> list[str]:
    """Where the image's own Python may be: never below a folder that the agent can write."""
    writable = mounts(spec)
    return [path for path in PYTHONS if not any(path.startswith(folder + "/") for folder in writable)]


def argv(python: str) -> list[str]:
    """The command that runs the inside program, isolated from the environment and user's site packages."""
    return [python, "-I", "-S", "-B", "-c", PROGRAM]


def put_request(files: Sequence[PutFile], spec: SandboxSpec, *, root: bool, read_only: bool) -> bytes:
    """The request that writes `files`. Raises ValueError for a path that is not absolute and normalised."""
    items = []
    for file in files:
        if not file.path.startswith("/") or posixpath.normpath(file.path) != file.path or file.path == "/":
            raise ValueError(f"{file.path!r} is not an absolute, normalised path")
        items.append({"path": file.path, "size": len(file.data), "mode": file.mode & 0o777})
    head = {"do": "put", "files": items, "root": root, "read_only": read_only, "grader": GRADER,
            "mounts": [path for path in mounts(spec) if path != SHM]}
    return json.dumps(head).encode() + b"\n" + b"".join(file.data for file in files)


def put_answer(output: bytes) -> tuple[int, str]:
    """(errno, path) of a put; (0, "") when all was written. Raises SandboxFault."""
    try:
        value = json.loads(output)
        return int(value["errno"]), str(value.get("path", ""))
    except (ValueError, KeyError, TypeError):
        raise SandboxFault("exec-lost", "writing files gave no proper answer", "run the episode again") from None


def collect_request(globs: Sequence[str], limits: CollectLimits) -> bytes:
    """The request for a collection. Raises ValueError for a glob that is not absolute."""
    for glob in globs:
        if not glob.startswith("/") or ".." in glob.split("/") or glob.endswith("/"):
            raise ValueError(f"{glob!r} is not an absolute glob for files")
    bounds = {"files": limits.files, "file_bytes": limits.file_bytes, "total_bytes": limits.total_bytes}
    return json.dumps({"do": "collect", "globs": list(globs), "limits": bounds}).encode() + b"\n"


def output_bound(limits: CollectLimits) -> int:
    """Bytes that a proper answer cannot pass."""
    return limits.total_bytes + limits.files * HEADER_BYTES + END_BYTES


def collect_answer(output: bytes) -> Artefacts:
    """Read a collection. Raises SandboxFault when it is torn."""
    files: list[Artefact] = []
    at = 0
    while True:
        line_end = output.find(b"\n", at)
        try:
            head: Any = json.loads(output[at:line_end]) if line_end >= 0 else None
        except ValueError:
            head = None
        if not isinstance(head, dict):
            raise SandboxFault("exec-lost", "a collection of files was torn", "run the episode again")
        at = line_end + 1
        if head.get("end"):
            break
        data = output[at:at + head["size"]]
        at += head["size"]
        files.append(Artefact(head["path"], data, head["mode"], "sha256:" + hashlib.sha256(data).hexdigest()))
    problem = head["problem"]
    kept = () if problem else tuple(files)
    return Artefacts(kept, digest_of(kept), problem, tuple(head["rejected"]))


def digest_of(files: Sequence[Artefact]) -> str:
    """One digest over paths, modes and contents."""
    total = hashlib.sha256()
    for file in files:
        total.update(json.dumps([file.path, file.mode, file.digest]).encode() + b"\n")
    return "sha256:" + total.hexdigest()


def broken(problem: str) -> Artefacts:
    """A collection that could not be made for what the agent left behind."""
    return Artefacts((), digest_of(()), problem)
