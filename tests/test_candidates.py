"""Candidates of every settings module reach TTIR: nothing is offered that has no kernel. `make sweep` compiles all."""

from typing import cast

import numpy as np
import pytest
from tools.candidates import SPACES, jobs
from tools.sweep import as_delivered

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of

pytest.importorskip("triton")


def kernels(module: str, arch: str) -> list[tuple[str, object, Job]]:
    """What the candidates of a module launch, each kernel with its constants once, whatever is known of pointers."""
    device = NullDevice(target_of(arch))
    with as_delivered():
        found = [one for choices in SPACES[module] for one in jobs(device, choices(device))]
    return list({(j.fn.name, j.signature, j.constants): (name, s, j) for name, s, j in found}.values())


def without_ttir(found: list[tuple[str, object, Job]]) -> list[str]:
    wrong: list[str] = []
    for name, setting, job in found:
        try:
            ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
        except CompileError as error:
            wrong.append(f"{name} {setting}: {error}")
    return wrong


@pytest.mark.parametrize("module", sorted(SPACES))
def test_candidates_have_ttir(module: str) -> None:
    assert not without_ttir(kernels(module, "sm_90")[::5])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("shape", [(4096, 32), (4096, 128), (4096, 31)])
def test_sorts_of_whole_and_of_masked_tiles_have_ttir(dtype: str, shape: tuple[int, int]) -> None:
    device = NullDevice(target_of("sm_90"))
    nbx.sort_with_indices(nbx.empty(shape, dtype, device))
    assert not without_ttir([(f"{dtype} {shape}", None, cast("Job", call.job)) for call in device.calls])


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "float32", "bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(512, 32), (512, 128), (64, 1024), (8, 4096)])
def test_sorts_that_fill_their_tiles(dtype: str, shape: tuple[int, int], device: str) -> None:
    """No row and no tile is cut off, which is a kernel without masks."""
    x = np.random.default_rng(1).integers(-100, 100, shape).astype(dtypes.dtype(dtype).numpy)
    values, indices = nbx.sort_with_indices(nbx.from_numpy(x, device))
    order = np.argsort(x, -1, kind="stable")
    assert np.array_equal(nbx.to_numpy(indices), order)
    assert np.array_equal(nbx.to_numpy(values), np.take_along_axis(x, order, -1))
