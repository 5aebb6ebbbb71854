"""Filling a fresh sandbox with what the agent begins with."""

from __future__ import annotations

from guerdon.compiler.plan.schema import EnvironmentPlan, InstancePlan
from guerdon.runtime.contracts.assets import expand
from guerdon.runtime.contracts.sandbox import PutFile, Sandbox, SandboxFault
from guerdon.runtime.contracts.store import AssetReader


def initial_files(
    environment: EnvironmentPlan, instance: InstancePlan, assets: AssetReader
) -> tuple[PutFile, ...]:
    """The environment's files with the row's own laid over them, each path once, in path order.

    Raises AssetFault.
    """
    found: dict[str, PutFile] = {}
    for path, digest in (*environment.files, *instance.files):
        for file in expand(assets, path, digest):
            found[file.path] = file
    return tuple(found[path] for path in sorted(found))


async def fill(sandbox: Sandbox, files: tuple[PutFile, ...]) -> None:
    """Write the initial files with the agent's own rights, so that it may change them.

    Raises SandboxFault, also where the sandbox refuses a file: that is the pack's or the host's doing, never
    the agent's.
    """
    if not files:
        return
    try:
        await sandbox.put(files)
    except OSError as refused:
        raise SandboxFault(
            "setup-refused",
            f"the environment's files do not fit into the sandbox: {refused}",
            "give the environment more `disk`, or put its files below `workdir` or a `scratch` folder",
        ) from refused
