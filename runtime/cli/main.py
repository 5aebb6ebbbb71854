"""The `guerdon` command. `check` must start in well under 0.3 s, so nothing is imported before it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

OK, DIAGNOSTICS, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

COMMANDS = {
    "check": ("guerdon.runtime.cli.check:main", "find what is wrong with a pack, without running anything"),
    "plan": ("guerdon.runtime.cli.plan:main", "show what a pack compiles to, or write it with -o plan.json"),
    "lock": ("guerdon.runtime.cli.lock:main", "run oracle and idle once and write guerdon.lock"),
    "run": ("guerdon.runtime.cli.run:main", "run a policy over a pack: `guerdon run PACK policy=oracle`"),
    "eval": ("guerdon.runtime.cli.eval:main", "run a policy over the held-out rows: pass@k with standard errors"),
    "serve-policy": ("guerdon.runtime.cli.serve:main", "serve a model over the Chat Completions protocol"),
    "train": ("guerdon.runtime.cli.train:main", "train a policy on a pack: `guerdon train PACK`"),
    "report": ("guerdon.runtime.cli.report:main", "write report.html of a training run: `report RUN_FOLDER`"),
    "calibrate": ("guerdon.runtime.cli.calibrate:main", "oracle must pass, idle and attacks must fail"),
    "import": ("guerdon.runtime.cli.importing:main", "make a pack of a known data set: `import humaneval DIR`"),
    "explain": ("guerdon.runtime.cli.explain:main", "what a diagnostic's code means: `guerdon explain T301`"),
    "doctor": ("guerdon.runtime.cli.doctor:main", "what works on this machine, and what mends the rest"),
    "sandbox": ("guerdon.runtime.cli.sandboxes:main", "list or remove what runners left: `sandbox ls|gc`"),
    "service": ("guerdon.runtime.cli.sandboxes:service", "guerdon's own Podman service: `service status|stop`"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 (ok), 1 (diagnostics or a failed run), 2 (usage), 3 (internal), 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return OK if words else USAGE
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"guerdon {version('guerdon')}")
        return OK
    if words[0] not in COMMANDS:
        from guerdon.dsl.suggest import did_you_mean

        guess = did_you_mean(words[0], tuple(COMMANDS))
        hint = f"did you mean `guerdon {guess}`?" if guess else "`guerdon --help` lists the commands"
        print(f"error: there is no command `{words[0]}`; {hint}", file=sys.stderr)
        return USAGE
    return _call(words[0], words[1:])


def _call(command: str, rest: list[str]) -> int:
    module, _, function = COMMANDS[command][0].partition(":")
    try:
        result: int = getattr(import_module(module), function)(rest)
        sys.stdout.flush()
        return result
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (a pager, head) has gone: nothing more can be said to it, and that is no fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as problem:  # noqa: BLE001 - the last line of defence: one line for people, never a traceback
        return _internal(command, problem)


def _internal(command: str, problem: Exception) -> int:
    if os.environ.get("GUERDON_DEBUG"):
        raise problem
    print(f"internal error in `guerdon {command}`: {type(problem).__name__}: {problem}\n"
          "this is a defect of guerdon; set GUERDON_DEBUG=1 for the traceback and report it", file=sys.stderr)
    return INTERNAL


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "usage: guerdon COMMAND …\n\n" + "\n".join(lines) + "\n\n`guerdon COMMAND --help` tells more."


if __name__ == "__main__":
    sys.exit(main())
