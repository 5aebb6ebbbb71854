"""The process of one rank: `python -m guerdon.runtime.learner.rank`, started by `ranks.Ranks`.

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are in the environment, as torchrun sets them. Rank 0 reads
commands from the controller and hands each to the others; all carry it out together. A fault of the learner is an
answer; anything else ends the process, and with it all ranks.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig, Row, WeightsRef
from guerdon.runtime.contracts.sampling import Request, SamplerFault
from guerdon.runtime.learner import wire
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape
from guerdon.runtime.learner.wire import Answer, Command

PATIENCE = datetime.timedelta(days=30)
"""How long ranks wait for each other: rollouts take hours, and the controller sees a dead rank by itself."""
_PR_SET_PDEATHSIG = 1


def watch_controller(lifeline: int) -> None:
    """End this process when the controller has gone, however it went: its end of the pipe closes with it."""

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)  # this rank's own group: what writes its checkpoint goes too

    threading.Thread(target=wait, daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Session:
    """A rank's engine and sampler; each public method is a command that all ranks carry out together."""

    def __init__(self, config: LearnerConfig, control: Any) -> None:
        from guerdon.runtime.learner import device, fit
        from guerdon.runtime.learner.engine import Engine
        from guerdon.runtime.learner.sampler import DecoderSampler

        here = device.current()
        config, weights = pretrained(config)
        fit.check(config)
        self.control, self.shape = control, config.model
        self.engine = Engine(config, here, weights)
        self.sampler = DecoderSampler(self.shape, self.engine.tensors(), 0)
        self.published = True

    def describe(self) -> ModelShape:
        return self.shape

    def logprobs(self, rows: Sequence[Row], temperature: float) -> list[tuple[float, ...]]:
        return self.engine.logprobs(rows, temperature)

    def train_step(self, rows: Sequence[Row], loss: LossConfig, lr: float) -> dict[str, float]:
        metrics = self.engine.train_step(rows, loss, lr)
        self.published = False
        return metrics

    def renew(self) -> None:
        self.engine.renew()
        self.published = False

    def keep_reference(self) -> None:
        self.engine.keep_reference()

    def reference(self, rows: Sequence[Row], temperature: float) -> list[tuple[float, ...]]:
        return self.engine.reference(rows, temperature)

    def publish(self) -> WeightsRef:
        published, tensors = self.engine.publish()
        self.sampler.update(tensors, published.version)
        self.published = True
        return published

    def save(self, folder: Path) -> None:
        self.engine.save(folder)

    def load(self, folder: Path) -> None:
        self.published = False
        self.engine.load(folder)

    def export_hf(self, folder: Path) -> None:
        from guerdon.runtime.learner import hf, together

        tensors = self.engine.tensors()
        together.on_first(lambda: hf.write(folder, self.shape, tensors), f"weights for {folder} cannot be written")

    def generate(self, shares: Sequence[Sequence[Request]]) -> list[Any]:
        """Each rank decodes its share; rank 0 gets all of them, in the order of the ranks."""
        import torch.distributed as dist

        if not self.published:
            raise SamplerFault("the weights have changed since they were published: call publish before sampling")
        try:
            mine: Any = self.sampler.generate(shares[dist.get_rank()])
        except (SamplerFault, ValueError) as error:
            mine = str(error)
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine, group=self.control)
        for share in found:
            if isinstance(share, str):
                raise SamplerFault(share)
        return found

    def forget(self, sessions: Sequence[str]) -> None:
        self.sampler.forget(sessions)

    def answer(self, command: Command) -> Answer:
        """Carry out a command; faults that all ranks agree on become answers."""
        try:
            return Answer("value", getattr(self, command.name)(*command.arguments))
        except LearnerFault as fault:
            return Answer("learner", str(fault))
        except SamplerFault as fault:
            return Answer("sampler", str(fault))


def pretrained(config: LearnerConfig) -> tuple[LearnerConfig, Any]:
    """The configuration with the shape of its pretrained weights, and the weights (None for random ones)."""
    import dataclasses

    if not config.weights:
        return config, None
    from guerdon.runtime.learner import hf

    shape, tensors = hf.read(Path(config.weights))
    return dataclasses.replace(config, model=shape), tensors


def serve(link: socket.socket | None) -> None:
    """Carry out commands until the controller says to close, or goes. The first one is `start`."""
    import torch.distributed as dist

    control = dist.new_group(backend="gloo", timeout=PATIENCE)
    session: Session | None = None
    while True:
        box = [wire.receive(link) if link else None]
        dist.broadcast_object_list(box, src=0, group=control)
        command = box[0]
        if command is None or command.name == "close":
            return
        if command.name == "start":
            try:
                session = Session(command.arguments[0], control)
                answer = Answer("value", session.describe())
            except LearnerFault as fault:
                answer = Answer("learner", str(fault))
        else:
            assert session is not None, "the controller starts with `start`"
            answer = session.answer(command)
        if link:
            wire.send(link, answer)


def main() -> None:
    """Join the other ranks, then serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--control", type=int, default=-1)
    given = parser.parse_args()
    watch_controller(given.lifeline)
    warnings.filterwarnings("ignore")  # megatron-core warns of every kernel that is not installed
    import torch.distributed as dist

    from guerdon.runtime.learner import device

    here = device.prepare(int(os.environ["LOCAL_RANK"]), int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group(here.backend, timeout=PATIENCE)
    serve(socket.socket(fileno=given.control) if given.control >= 0 else None)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and tearing process groups down may wait for ranks that went first


if __name__ == "__main__":
    main()
