"""The shim's table, configurations that cannot be, and how rows become micro-batches."""

import dataclasses
import importlib.util
import random
import re
import sys
import types
from pathlib import Path

import pytest

from guerdon.runtime.contracts.learner import LearnerFault, Row
from guerdon.runtime.learner import batch, fit, shim
from guerdon.runtime.learner.modules import visible, zigzag
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, Parallel, RopeScaling

ROOM = Path(shim.__file__).parent


def test_every_symbol_of_the_table_exists_and_is_replaced(layouts):
    assert layouts("faults")["symbols"] == {patch.symbol: True for patch in shim.PATCHES}
    assert all(patch.why for patch in shim.PATCHES)


def test_a_symbol_is_named_once():
    symbols = [patch.symbol for patch in shim.PATCHES]
    assert len(symbols) == len(set(symbols))


def test_clipping_is_patched_wherever_it_was_imported():
    (home,) = importlib.util.find_spec("megatron").submodule_search_locations
    folder = Path(home) / "core" / "optimizer"
    name = "clip_grad_by_total_norm_fp32"
    where = {path.stem for path in folder.glob("*.py") if re.search(rf"import.*{name}", path.read_text())}
    patched = {patch.symbol.split(".")[-2] for patch in shim.PATCHES if patch.symbol.endswith(name)}
    assert where | {"clip_grads"} == patched


def test_another_version_is_refused(monkeypatch):
    for name in ("megatron", "megatron.core", "megatron.core.package_info"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["megatron.core.package_info"].__version__ = "0.17.0"
    with pytest.raises(LearnerFault, match=r"megatron-core 0\.17\.0 is not supported: install megatron-core==0\.16\."):
        shim.check_version()


def test_nothing_is_installed_with_cuda(monkeypatch):
    import torch

    def refuse(symbol):
        raise AssertionError(symbol)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(shim, "_installed", False)
    monkeypatch.setattr(shim, "check_version", lambda: None)
    monkeypatch.setattr(shim, "resolve", refuse)
    assert shim.install() is False


def test_cuda_is_named_in_one_file_and_its_shim_alone():
    named = {path.name for path in ROOM.glob("*.py") if "torch.cuda" in path.read_text(encoding="utf-8")}
    assert named == {"device.py", "shim.py"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (LearnerConfig(parallel=Parallel(3, tensor=2)), "parallel.ranks (3) is no multiple of tensor * pipeline"),
        (LearnerConfig(parallel=Parallel(8, tensor=8)), "model.heads (4) is no multiple of parallel.tensor (8)"),
        (LearnerConfig(parallel=Parallel(3, pipeline=3)), "model.layers (4) is no multiple of parallel.pipeline (3)"),
        (LearnerConfig(parallel=Parallel(2, sequence=True)), "parallel.sequence shares work inside tensor parallelism"),
        (LearnerConfig(model=ModelShape(heads=3, kv_heads=2)), "model.heads (3) is no multiple of model.kv_heads (2)"),
        (LearnerConfig(ModelShape(kv_heads=1), Parallel(2, tensor=2)), "model.kv_heads (1) is no multiple"),
        (LearnerConfig(model=ModelShape(vocab=0)), "model.vocab is 0: give 1 or more"),
        (LearnerConfig(model=ModelShape(head_dim=7)), "model.head_dim is 7: rotary positions need an even number"),
        (LearnerConfig(model=ModelShape(rope_scaling=RopeScaling(8, 4, 4))), "model.rope_scaling needs"),
        (LearnerConfig(precision="fp8"), "precision is 'fp8': give fp32 or bf16"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(config, problem):
    with pytest.raises(LearnerFault, match=re.escape(problem)):
        fit.check(config)


def test_the_default_can_be():
    fit.check(LearnerConfig())


def row(size, mask=None):
    return Row((1,) * size, mask or (0,) * size, (0.0,) * size, (0.0,) * size)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_row_goes_to_one_rank_and_loads_are_even(ranks):
    draw = random.Random(ranks)
    sizes = [draw.randrange(1, 100) for _ in range(60)]
    shares = batch.assign(sizes, range(60), ranks)
    assert sorted(index for share in shares for index in share) == list(range(60))
    loads = [sum(sizes[index] for index in share) for share in shares]
    assert max(loads) - min(loads) <= max(sizes)  # of any greedy deal
    assert shares == batch.assign(sizes, range(60), ranks)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_micro_batches_hold_all_rows_within_the_limit(stages):
    draw = random.Random(7)
    sizes = [draw.randrange(1, 50) for _ in range(30)]
    shares = batch.pack(sizes, range(30), 120, stages)
    assert [index for share in shares for index in share.rows] == list(range(30))
    for share in shares:
        assert share.width == max(sizes[index] for index in share.rows)
        assert share.width * len(share.rows) <= 120 or len(share.rows) == 1
    assert len(shares) >= stages


def test_a_row_above_the_limit_goes_alone_and_a_rank_without_rows_gets_padding():
    assert batch.pack([500, 3], [0, 1], 100, 1) == [batch.Share((0,), 500), batch.Share((1,), 3)]
    assert batch.pack([8, 4], [], 100, 1) == [batch.Share((), 4)]


def test_widths_are_multiples_of_what_the_layout_needs():
    rows = [row(1), row(9), row(10)]
    assert batch.widths(rows, Parallel()) == [1, 8, 9]
    assert batch.widths(rows, Parallel(2, context=2)) == [4, 8, 12]
    assert batch.widths(rows, Parallel(4, tensor=2, context=2, sequence=True)) == [8, 8, 16]


def test_context_ranks_hold_each_position_once_and_see_what_is_causal():
    parts = [zigzag(4, 3, rank).tolist() for rank in range(3)]
    assert parts == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    import torch

    keys = [position for part in parts for position in part]
    for rank, part in enumerate(parts):
        wanted = [[key <= query for key in keys] for query in part]
        assert visible(4, 3, rank, torch.device("cpu")).tolist() == wanted


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row(0), "has 0 ids"),
        (row(2, (1, 0)), "trains its first id"),
        (dataclasses.replace(row(2), logprobs=(0.0,)), "of another length than its ids"),
        (dataclasses.replace(row(2), reference=(0.0,)), "of another length than its ids"),
        (dataclasses.replace(row(2), ids=(1, -1)), "has ids outside of the vocabulary"),
    ],
)
def test_a_row_that_the_model_cannot_take_is_named(bad, problem):
    with pytest.raises(LearnerFault, match=f"row 1 of the batch .*{problem}"):
        batch.check([row(3), bad], ModelShape())
