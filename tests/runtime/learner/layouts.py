"""Runs the same steps in many parallel layouts: torch and Megatron-core are imported once, then four processes forked.

`python layouts.py OUT` writes OUT/<layout>.pt for every layout of LAYOUTS and every later load of a checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from guerdon.runtime.contracts.learner import LearnerFault, LossConfig, Row
from guerdon.runtime.learner import device, names, shim
from guerdon.runtime.learner.decode import sizes
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, OptimizerConfig, Parallel, RopeScaling

SHAPE = ModelShape(
    layers=4, hidden=32, ffn=48, heads=4, kv_heads=2, head_dim=8, vocab=61, context=64, qk_norm=True, qkv_bias=True,
    rope_scaling=RopeScaling(4.0, 1.0, 3.0, 16),
)  # fmt: skip
UNTIED = dataclasses.replace(SHAPE, tied=False, qk_norm=False, rope_scaling=None)
LOSSES = (
    LossConfig(name="grpo", kl=0.05, entropy=0.01, temperature=0.8),
    LossConfig(name="gspo"),
)
LR = 3e-3
SHARED = Parallel(4, tensor=2, sequence=True, distributed_optimizer=True)

# (name, ranks taken of the four, layout, shape)
LAYOUTS = (
    ("one", (0,), Parallel(), SHAPE),
    ("one_untied", (1,), Parallel(), UNTIED),
    ("tp2", (2, 3), Parallel(2, tensor=2), SHAPE),
    ("pp2", (0, 1), Parallel(2, pipeline=2), SHAPE),
    ("cp2", (2, 3), Parallel(2, context=2), SHAPE),
    ("dp2", (0, 1), Parallel(2), SHAPE),
    ("pp2_untied", (2, 3), Parallel(2, pipeline=2), UNTIED),
    ("tp2_pp2", (0, 1, 2, 3), Parallel(4, tensor=2, pipeline=2), SHAPE),
    ("tp2_dp2_sp_distopt", (0, 1, 2, 3), SHARED, SHAPE),
)
# What is saved after the first step goes on in other layouts: (name, ranks, layout, saved by)
RESUMED = (
    ("one_again", (0,), Parallel(), "one"),
    ("one_from_tp2_pp2", (1,), Parallel(), "tp2_pp2"),
    ("pp2_from_tp2", (2, 3), Parallel(2, pipeline=2), "tp2"),
    ("dp2_again", (0, 1), Parallel(2), "dp2"),
    ("tp2_from_distopt", (2, 3), Parallel(2, tensor=2, distributed_optimizer=True), "tp2_dp2_sp_distopt"),
    ("one_from_distopt", (0,), Parallel(1, distributed_optimizer=True), "tp2_dp2_sp_distopt"),
    ("distopt_again", (0, 1, 2, 3), SHARED, "tp2_dp2_sp_distopt"),
)


def rows() -> list[Row]:
    """Seven ragged rows: one of a single id, one invalid, the others with masks that have holes."""
    draw, found = random.Random(5), []
    for index, size in enumerate((23, 7, 30, 1, 12, 18, 9)):
        ids = tuple(draw.randrange(SHAPE.vocab) for _ in range(size))
        mask = tuple(int(place >= 3 and index != 4 and draw.random() < 0.8) for place in range(size))
        gain = draw.gauss(0, 1)
        found.append(
            Row(
                ids,
                mask,
                tuple((-4.1 + 0.4 * draw.random()) * m for m in mask),
                tuple(gain * m for m in mask),
                tuple((-4.0 + 0.4 * draw.random()) * m for m in mask),
            )
        )
    return found


def weights(shape: ModelShape) -> dict[str, torch.Tensor]:
    """Weights of which none is 0 or 1, so that every term of the model counts."""
    found = {}
    for name in sizes(shape):
        value = names.Drawn(shape, 1)[name]
        key = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
        found[name] = value * 1.5 + 0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(key))
    return found


def make(parallel: Parallel, shape: ModelShape):
    from guerdon.runtime.learner.engine import Engine

    # Adam divides a gradient by its own size: eps above the rounding of gradients that are 0 (the keys' bias).
    steps = OptimizerConfig(weight_decay=0.1, clip_grad=0.2, eps=1e-4)
    config = LearnerConfig(model=shape, parallel=parallel, micro_tokens=40, optimizer=steps)
    return Engine(config, device.current(), weights(shape))


def fresh(out: Path, name: str, parallel: Parallel, shape: ModelShape) -> dict:
    engine = make(parallel, shape)
    found = {"before": engine.logprobs(rows(), 0.8), "metrics": [], "initial": copied(engine)}
    engine.keep_reference()
    for index, loss in enumerate(LOSSES):
        found["metrics"].append(engine.train_step(rows(), loss, LR))
        if index == 0:
            found["stepped"] = copied(engine)
            engine.save(out / f"checkpoint-{name}")
    found |= {"after": engine.logprobs(rows()), "reference": engine.reference(rows(), 0.8)}
    return found | {"tensors": copied(engine), "digest": engine.publish()[0].digest}


def copied(engine) -> dict:
    return {name: tensor.clone() for name, tensor in engine.tensors().items()}


def resumed(out: Path, saved: str, parallel: Parallel) -> dict:
    engine = make(parallel, SHAPE)
    engine.load(out / f"checkpoint-{saved}")
    found = {"metrics": [engine.train_step(rows(), LOSSES[1], LR)], "reference": engine.reference(rows(), 0.8)}
    found["again"] = told(lambda: engine.save(out / f"checkpoint-{saved}"))
    return found | {"tensors": copied(engine), "digest": engine.publish()[0].digest}


def faults(out: Path) -> dict:
    """What a rank says of damaged checkpoints and of numbers that are not finite; nothing of it changes the weights."""
    engine = make(Parallel(), SHAPE)
    before, found = engine.publish()[0].digest, {}
    for name, damage in (("cut", cut), ("half", half), ("flipped", flipped), ("manifest", manifest)):
        copy = out / f"checkpoint-{name}"
        engine.save(copy)
        damage(copy)
        found[name] = told(lambda copy=copy: engine.load(copy))
    found["missing"] = told(lambda: engine.load(out / "nowhere"))
    found["other"] = told(lambda: engine.load(out / "checkpoint-tp2_dp2_sp_distopt"))
    huge = [dataclasses.replace(row, advantages=tuple(3e38 * m for m in row.mask)) for row in rows()]
    found["infinite"] = told(lambda: engine.train_step(huge, LossConfig(), LR))
    found["empty"] = told(lambda: engine.train_step([dataclasses.replace(rows()[0], mask=(0,) * 23)], LossConfig(), LR))
    found["unknown"] = told(lambda: engine.train_step(rows(), LossConfig(name="gpro"), LR))
    found["long"] = told(lambda: engine.logprobs([Row((1,) * 65, (0,) * 65, (0.0,) * 65, (0.0,) * 65)]))
    found["vocabulary"] = told(lambda: engine.logprobs([Row((61,), (0,), (0.0,), (0.0,))]))
    found["no reference"] = told(lambda: engine.reference(rows()))
    found["symbols"] = {patch.symbol: replaced(patch.symbol) for patch in shim.PATCHES}
    found["unchanged"] = engine.publish()[0].digest == before
    return found


def replaced(symbol: str) -> bool:
    owner, name = shim.resolve(symbol)
    function = getattr(owner, name)
    return function is torch.manual_seed or function.__code__.co_filename == shim.__file__


def cut(folder: Path) -> None:
    victim = next(folder.glob("*.distcp"))
    victim.write_bytes(victim.read_bytes()[:-100])


def half(folder: Path) -> None:
    next(folder.glob("*.distcp")).unlink()


def flipped(folder: Path) -> None:
    victim = next(folder.glob("*.distcp"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)


def manifest(folder: Path) -> None:
    (folder / "guerdon.json").write_text("{", encoding="utf-8")


def told(action) -> str:
    try:
        action()
    except LearnerFault as fault:
        return str(fault)
    return ""


def bf16(out: Path) -> dict:
    from guerdon.runtime.learner.engine import Engine

    config = LearnerConfig(model=SHAPE, precision="bf16", micro_tokens=40)
    engine = Engine(config, device.current(), weights(SHAPE))
    found = {"before": engine.logprobs(rows(), 0.8), "metrics": [engine.train_step(rows(), LOSSES[0], LR)]}
    engine.save(out / "checkpoint-bf16")
    engine.train_step(rows(), LOSSES[0], LR)
    found["digest"] = engine.publish()[0].digest
    engine.load(out / "checkpoint-bf16")
    engine.train_step(rows(), LOSSES[0], LR)
    return found | {"again": engine.publish()[0].digest}


def together(out: Path, name: str, members: tuple[int, ...], me: int, work) -> None:
    """One layout in a process group of its own."""
    from megatron.core import parallel_state

    store = dist.FileStore(str(out / f"store-{name}"), len(members))
    dist.init_process_group("gloo", store=store, rank=members.index(me), world_size=len(members))
    result = work()
    if me == members[0]:
        torch.save(result, out / f"{name}.pt")
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def member(out: Path, me: int) -> None:
    for name, members, parallel, shape in LAYOUTS:
        if me in members:
            together(out, name, members, me, lambda n=name, p=parallel, s=shape: fresh(out, n, p, s))
    for name, members, parallel, saved in RESUMED:
        if me in members:
            together(out, name, members, me, lambda p=parallel, s=saved: resumed(out, s, p))
    if me == 0:
        together(out, "faults", (0,), 0, lambda: faults(out))
    if me == 1:
        together(out, "bf16", (1,), 1, lambda: bf16(out))


def main() -> None:
    warnings.filterwarnings("ignore")
    out = Path(sys.argv[1])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    device.prepare(0, 1)  # with what follows, everything is imported once, before the forks
    import megatron.core.models.gpt
    import megatron.core.pipeline_parallel  # noqa: F401
    from megatron.core import dist_checkpointing  # noqa: F401

    from guerdon.runtime.learner import checkpoint, engine  # noqa: F401

    children = []
    for me in range(4):
        child = os.fork()
        if child == 0:
            try:
                member(out, me)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - what a forked process says before it ends
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    codes = []
    while children:
        child, status = os.wait()
        children.remove(child)
        codes.append(status)
        if status:  # the others may wait for it for ever
            for other in children:
                os.kill(other, 9)
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
