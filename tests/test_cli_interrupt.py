"""Ctrl-C on the command line, in real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from nbxtensor.compiler.store import ArtifactStore
from onnx_graphs import graph

OPERATORS = ("Exp", "Tanh", "Erf", "Sigmoid", "Sqrt", "Abs", "Neg", "Floor", "Ceil", "Sin", "Cos", "Log", "Softplus")

# A model is loaded; where kernels would be compiled, Ctrl-C comes in a destructor, where Python drops errors.
_LOST = """
import signal, sys, time
import nbxtensor.cli.compiling
from nbxtensor.cli.__main__ import main

class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def compile_many(jobs, progress):
    Dying()
    time.sleep(20)

nbxtensor.cli.compiling.compile_many = compile_many
sys.exit(main())
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    names = [f"t{i}" for i in range(len(OPERATORS) + 1)]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(OPERATORS)]
    path = tmp_path / "model.onnx"
    path.write_bytes(graph(nodes, {"t0": np.ones(5, np.float32)}, [names[-1]]).SerializeToString())
    return path


def start(program: list[str], model: Path, **knobs: str) -> subprocess.Popen[str]:
    folder = model.parent
    return subprocess.Popen(
        [sys.executable, *program, "run", str(model), "--output-dir", str(folder / "out")],
        env={**os.environ, "NBX_CACHE_DIR": str(folder / "cache"), **knobs},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def processes_of(folder: Path) -> list[str]:
    """Command lines of the live processes that were started with the cache in `folder`."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"NBX_CACHE_DIR={folder}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupted_compile_leaves_nothing_behind(workers: str, model: Path) -> None:
    process = start(["-m", "nbxtensor.cli"], model, NBX_COMPILE_WORKERS=workers)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("compiling 13 kernels")
    assert len(processes_of(model.parent)) == {"1": 1, "2": 3}[workers]
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=20)
    assert processes_of(model.parent) == []
    out, err = process.communicate()  # which would wait for workers, too
    assert (process.returncode, out, err.strip()) == (130, "", "nbxtensor: interrupted")
    store = ArtifactStore(model.parent / "cache")
    kept = store.entries()
    assert 0 < len(kept) < 13
    assert all(store.read(entry) for entry in kept)
    begun = list((model.parent / "cache" / "v1").glob(".tmp-*"))  # what a stopped worker was writing; swept later
    assert len(begun) <= int(workers)
    again = start(["-m", "nbxtensor.cli"], model)
    _, err = again.communicate(timeout=60)
    assert (again.returncode, err) == (0, f"compiling {13 - len(kept)} kernels for {kept_target(store)}\n")


def kept_target(store: ArtifactStore) -> str:
    artifact = store.read(store.entries()[0])
    assert artifact is not None
    return str(artifact.target)


def test_an_interrupt_that_python_drops_comes_again(model: Path) -> None:
    started = time.monotonic()
    process = start(["-c", _LOST], model)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "nbxtensor: interrupted")
    assert time.monotonic() - started < 15
