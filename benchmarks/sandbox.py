"""What a sandbox costs, against floors in the same run: a subprocess, and Podman's own exec."""

import asyncio
import statistics
import subprocess
import time

from guerdon.runtime.contracts.sandbox import ImageRecipe, SandboxSpec
from guerdon.runtime.sandbox import PodmanProvider

RUNS = 10


async def timed(work):
    """Milliseconds of one await."""
    began = time.perf_counter()
    result = await work
    return (time.perf_counter() - began) * 1000, result


def show(name, milliseconds, floor):
    """One line: the median and its ratio to the floor's."""
    median = statistics.median(milliseconds)
    print(f"{name:<34} {median:8.1f} ms   ratio {median / floor:7.1f}")


async def main():
    """Measure creation, commands by shell and by exec, and removal."""
    floor = []
    for _ in range(RUNS):
        began = time.perf_counter()
        await asyncio.to_thread(subprocess.run, ["true"], check=True)
        floor.append((time.perf_counter() - began) * 1000)
    base = statistics.median(floor)
    show("subprocess `true` (the floor)", floor, base)
    provider = await PodmanProvider.start()
    try:
        image = await provider.ensure_image(ImageRecipe("debian", ("git", "python3", "python3-pytest")))
        create, remove, shell_runs, exec_runs = [], [], [], []
        for _ in range(RUNS):
            took, sandbox = await timed(provider.create(SandboxSpec(image)))
            create.append(took)
            shell = await sandbox.shell()
            await shell.run("true", wall=10)
            for _ in range(5):
                shell_runs.append((await timed(shell.run("true", wall=10)))[0])
            exec_runs.append((await timed(sandbox.run(["true"])))[0])
            remove.append((await timed(sandbox.remove()))[0])
        show("sandbox: create, ready", create, base)
        show("sandbox: one command in its shell", shell_runs, base)
        show("sandbox: one command by exec", exec_runs, base)
        show("sandbox: remove", remove, base)
    finally:
        await provider.close()


if __name__ == "__main__":
    asyncio.run(main())
