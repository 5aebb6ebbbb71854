"""`guerdon serve-policy SOURCE`: a model's weights, a renderer and a port become a Chat Completions server."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.runtime.loop.config import RunError

if TYPE_CHECKING:
    from guerdon.runtime.contracts.renderer import Renderer
    from guerdon.runtime.learner.ranks import Ranks
    from guerdon.runtime.learner.shape import LearnerConfig

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MANIFEST = "guerdon.json"
BYTES = ("compact", "hermes")
"""Renderers over bytes, whose last id is the end of a turn."""


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    import asyncio

    from guerdon.runtime.cli.trouble import Problems, report
    from guerdon.runtime.contracts.learner import LearnerFault

    options = _options(argv)
    try:
        _refuse(options)
        with _bound(options.host, options.port) as listening:
            asyncio.run(_serve(options, listening))
        return 0
    except LearnerFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    except Problems as problem:
        return report(problem)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="guerdon serve-policy", description="Serve a model over the Chat Completions protocol of OpenAI.",
    )
    parser.add_argument("source", help="a checkpoint, the run folder of `guerdon train` (its newest checkpoint), "
                                       "a folder of Hugging Face or a GGUF file")
    parser.add_argument("--port", type=int, default=8000, help="0 for any free one (default: 8000)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: 127.0.0.1)")
    parser.add_argument("--renderer", default="", help="compact, hermes or chat (default: compact for our "
                                                               "checkpoints, chat for others' models)")
    parser.add_argument("--tokenizer", default="", help="where the tokenizer of `chat` is (default: the source)")
    parser.add_argument("--model", default="", help="the name clients call it by (default: the source's own)")
    parser.add_argument("--api-key-env", default="GUERDON_API_KEY", metavar="NAME",
                        help="the environment variable with the key that clients must send (default: GUERDON_API_KEY)")
    parser.add_argument("--max-tokens", type=int, default=1024, help="of a turn where a request does not say")
    parser.add_argument("--batch", type=int, default=64, help="turns sampled at once at most")
    parser.add_argument("--waiting", type=int, default=256, help="requests that may wait; others are told 429")
    parser.add_argument("--sessions", type=int, default=64, help="conversations whose cache is kept")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 for all")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of weights from elsewhere")
    return parser.parse_args(argv)


def _refuse(options: argparse.Namespace) -> None:
    """Raises RunError for what can be seen to be wrong before anything starts."""
    for extra, modules in (("serve", ("starlette", "uvicorn")), ("learn", ("torch", "megatron"))):
        if any(find_spec(module) is None for module in modules):
            raise RunError(f"serve-policy needs {' and '.join(modules)}: pip install 'guerdon[{extra}]'")
    for name in ("max_tokens", "batch", "waiting", "sessions"):
        if getattr(options, name) < 1:
            raise RunError(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be 1 or more")
    if not os.environ.get(options.api_key_env) and options.host not in LOOPBACK:
        raise RunError(f"--host {options.host} opens the model to others than this machine: set ${options.api_key_env} "
                       "to a key that they must send")


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as wrong:
        raise RunError(f"cannot listen at {host} port {port} ({wrong}); choose another with --port") from None


async def _serve(options: argparse.Namespace, listening: socket.socket) -> None:
    import uvicorn

    from guerdon.runtime.serve.app import Limits, make_app

    own = _checkpoint(Path(options.source)) is not None
    if not own and not options.renderer:
        _pretrained(Path(options.source), options.threads, options.precision)  # is it a model at all?
    name = options.renderer or ("compact" if own else "chat")
    renderer = make(name, options.tokenizer or options.source)
    ranks = await started(Path(options.source), options.threads, options.precision)
    try:
        _fits(renderer, ranks.shape.vocab, name)
        name = options.model or Path(options.source).absolute().name
        limits = Limits(options.batch, options.waiting, options.sessions, max_tokens=options.max_tokens)
        key = os.environ.get(options.api_key_env, "")
        app = make_app(ranks, renderer, name, context=ranks.shape.context, key=key, limits=limits)
        host, port = listening.getsockname()[:2]
        where = f"[{host}]" if ":" in host else host
        print(f"serving {name} at http://{where}:{port}/v1; Ctrl-C stops", file=sys.stderr, flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
        await server.serve(sockets=[listening])
    finally:
        await ranks.close()


def make(name: str, source: str) -> Renderer:
    """The renderer of a name. Raises RunError."""
    from guerdon.runtime.agent.table import make_renderer

    try:
        return make_renderer(name, source)
    except ValueError as wrong:
        raise RunError(str(wrong)) from wrong


def _fits(renderer: Renderer, vocab: int, name: str) -> None:
    """Ids of another vocabulary would be sampled from without a word, and mean nothing. Raises RunError."""
    last = max(renderer.stop, default=0)
    if last >= vocab or (name in BYTES and last + 1 != vocab):
        raise RunError(f"the renderer {name} is not for this model of {vocab} ids; choose another with --renderer")


async def started(source: Path, threads: int, precision: str) -> Ranks:
    """One rank with the weights of a source, which are published. Raises RunError, LearnerFault."""
    from guerdon.runtime.learner.ranks import Ranks

    checkpoint = _checkpoint(source)
    config = _config(checkpoint, threads) if checkpoint else _pretrained(source, threads, precision)
    ranks = await Ranks.start(config)
    if checkpoint:
        try:
            await ranks.load(checkpoint)
            await ranks.publish()
        except BaseException:
            await ranks.close()
            raise
    return ranks


def _checkpoint(source: Path) -> Path | None:
    """The folder of a checkpoint: the source itself, or the newest below a run folder."""
    from guerdon.runtime.loop.training import checkpoints

    if (source / MANIFEST).is_file():
        return source
    steps = checkpoints.steps(source)
    return checkpoints.folder(source, steps[-1]) if steps else None


def _config(checkpoint: Path, threads: int) -> LearnerConfig:
    """What a rank is built with for a checkpoint: its manifest says it."""
    from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, Parallel, RopeScaling

    try:
        manifest: dict[str, Any] = json.loads((checkpoint / MANIFEST).read_text("utf-8"))
        given = dict(manifest["shape"])
        scaling = given.pop("rope_scaling")
        shape = ModelShape(**given, rope_scaling=RopeScaling(**scaling) if scaling else None)
        parallel = Parallel(distributed_optimizer=manifest["distributed_optimizer"])
        return LearnerConfig(shape, parallel, precision=manifest["precision"], threads=threads)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise RunError(f"{checkpoint / MANIFEST} does not say what the model is ({wrong!r}); "
                       "name another checkpoint") from None


def _pretrained(source: Path, threads: int, precision: str) -> LearnerConfig:
    from guerdon.runtime.learner.shape import LearnerConfig

    if not (source / "config.json").is_file() and source.suffix != ".gguf":
        raise RunError(f"{source} is no model: name a checkpoint, a run folder with one, a folder of Hugging Face "
                       "(config.json and safetensors) or a .gguf file")
    return LearnerConfig(weights=str(source), threads=threads, precision=precision)
