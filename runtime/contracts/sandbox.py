"""What a sandbox is: a spec goes in, commands run, artefacts come out, faults are typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


class SandboxFault(Exception):
    """The infrastructure failed: never shown to an agent as output, never scored.

    `kind` is a stable word (`service-down`, `image-gone`, `disk-full`, `create-failed`, `exec-lost` …),
    `remedy` the one line that mends it.
    One kind is not ours but the agent's doing: `sandbox-oom`, where what ran in a sandbox took all its memory until
    the kernel ended the sandbox itself.
    """

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.kind})" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of one sandbox: thousandths of a CPU, bytes of memory, bytes in each writable folder, processes.

    Writable folders are memory: what the kernel lets a sandbox hold is `memory` and each of them filled.
    """

    cpu_milli: int = 1000
    memory: int = 512 * 1024 * 1024
    disk: int = 64 * 1024 * 1024
    pids: int = 128


Role = Literal["agent", "verify"]


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """All that decides what a sandbox is; equal specs give equal sandboxes.

    Role `agent`: every process (but an idle PID 1 that none of them can touch) runs as uid 1000, and none has a
    capability. Role `verify`: the trusted harness runs as uid 0 of the sandbox's own user namespace with SETUID,
    SETGID, KILL, CHOWN, DAC_OVERRIDE, FOWNER and nothing else, so that it can start the candidate as uid 1000;
    `/grader` is a tmpfs that only uid 0 can enter.
    """

    image: str
    """The image's id in the provider's storage, as `ImageStore.ensure` returned it."""
    workdir: str = "/workspace"
    scratch: tuple[str, ...] = ()
    """Further absolute paths that are writable (sized tmpfs); the rest of the root is read-only."""
    resources: Resources = Resources()
    env: tuple[tuple[str, str], ...] = ()
    role: Role = "agent"
    network: Literal["none"] = "none"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What one command did.

    `exit_code` is None when the time limit killed it; `stdout` and `stderr` are cut at the output limit
    (`truncated`), and a shell gives both streams in `stdout`, in order.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class PutFile:
    """One regular file to write: absolute path, content, permission bits."""

    path: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Artefact:
    """One collected regular file."""

    path: str
    data: bytes
    mode: int
    digest: str


@dataclass(frozen=True, slots=True)
class Artefacts:
    """The frozen result of an episode: collected files in path order, a digest over all of them.

    `problem` says why the collection broke its bounds (too large, too many …): the agent's doing, hence a
    fail and no fault. `rejected` lists what was passed over (links, devices, names that are not UTF-8).
    """

    files: tuple[Artefact, ...]
    digest: str
    problem: str | None = None
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectLimits:
    """Bounds of a collection: files, bytes of one file, bytes in all."""

    files: int = 2000
    file_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 64 * 1024 * 1024


class Shell(Protocol):
    """One bash kept open: the working directory and variables last from command to command."""

    async def run(self, command: str, *, wall: float, output: int = 64 * 1024) -> ExecResult:
        """Run a command; past `wall` seconds its whole process tree is killed (and the shell replaced,
        keeping the working directory where that still exists). Raises SandboxFault."""
        ...

    async def close(self) -> None:
        """End the shell."""
        ...


class Sandbox(Protocol):
    """One isolated machine. Every method raises SandboxFault when the infrastructure fails."""

    @property
    def id(self) -> str: ...

    @property
    def spec(self) -> SandboxSpec: ...

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", wall: float = 60.0, output: int = 1024 * 1024,
        root: bool = False, env: Mapping[str, str] | None = None, cwd: str | None = None,
    ) -> ExecResult:
        """Run a program to its end. `root` (role verify only) is uid 0 of the sandbox's user namespace;
        otherwise uid 1000. Past `wall` seconds the whole process tree is killed."""
        ...

    async def shell(self) -> Shell:
        """Open a shell as uid 1000 in the working directory."""
        ...

    async def put(self, files: Sequence[PutFile], *, root: bool = False, read_only: bool = False) -> None:
        """Write files, making folders as needed: as uid 1000 with an agent's rights, or as uid 0 (`root`).
        With `root` whatever lies at a path is replaced, never followed; `read_only` leaves files and folders
        owned by uid 0 and unwritable, but readable, by uid 1000. Raises SandboxFault, and OSError (with errno) where
        the sandbox's own rules refuse the write (full, read-only, no permission)."""
        ...

    async def quiesce(self) -> None:
        """Kill every process of uid 1000 and prove that none is left."""
        ...

    async def collect(self, globs: Sequence[str], limits: CollectLimits = CollectLimits()) -> Artefacts:
        """Read the regular files that match absolute globs (`**` crosses folders), links never followed."""
        ...

    async def remove(self) -> None:
        """Kill and remove; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """How to come by an image.

    kind `debian`: `packages` on a minimal Debian; kind `registry`: `reference` with a digest; kind
    `archive`: `reference` is a path of an OCI archive.
    """

    kind: str
    packages: tuple[str, ...] = ()
    reference: str = ""


class SandboxProvider(Protocol):
    """Where sandboxes come from."""

    async def ensure_image(self, recipe: ImageRecipe) -> str:
        """Return the id of the recipe's image, building or pulling it if it is not there."""
        ...

    async def create(self, spec: SandboxSpec, labels: Mapping[str, str] | None = None) -> Sandbox:
        """Make a sandbox, ready for its first command."""
        ...

    async def close(self) -> None:
        """Remove what this provider made and still holds."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `guerdon doctor`: what was looked at, whether it works, the line that mends it."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
