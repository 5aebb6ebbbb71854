"""One run of every parallel layout, shared by the tests that look at it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def layouts(tmp_path_factory):
    """A function from a layout's name to what its first rank found."""
    import torch

    out = tmp_path_factory.mktemp("layouts")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("layouts.py"), out],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return lambda name: torch.load(out / f"{name}.pt", weights_only=False)
