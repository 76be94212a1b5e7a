"""The candidates of the sort family and of running sums: what a profile allows, and kernels that need no stack."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.device import get
from nbxtensor.device.profile import known_profiles, load_profile, target_of
from nbxtensor.kernel.rows import Rows, rows_of
from nbxtensor.kernel.scan import launches as scan_launches
from nbxtensor.kernel.scan_settings import candidates as scan_candidates
from nbxtensor.ops.sort.launches import sort_tiles
from nbxtensor.ops.sort.layout import Layout, layout_of
from nbxtensor.ops.sort.radix import radix_sort
from nbxtensor.ops.sort.selection import select
from nbxtensor.ops.sort.settings import (
    log_of,
    longest,
    radix_candidates,
    row_candidates,
    selection_candidates,
    tile_candidates,
)
from nbxtensor.ops.sum import sum_of

GPUS = [name for name in known_profiles() if target_of(name).kind in ("cuda", "hip")]
KINDS = ("float32", "bfloat16", "int64")
SORTED = ((4096, 32), (4096, 128), (4096, 1024), (4096, 8192), (1, 70_000), (16, 9000))
SELECTED = (((1, 151_936), 50), ((64, 151_936), 50), ((8, 65_536), 300), ((65_536, 1024), 8))
SCANNED = ((1, 1 << 24), (3, 70_000), (4096, 16), (4096, 200), (4096, 4096), (1000, 100_003))


def layout(dtype: str, shape: tuple[int, int], k: int | None = None) -> Layout:
    k = shape[1] if k is None else k
    return layout_of(
        shape, 1, k, ((shape[1], 1), (k, 1), (k, 1)), dtypes.dtype(dtype), True, (True, True)
    )  # fmt: skip


def rows(shape: tuple[int, int], axis: int = 1) -> Rows:
    return rows_of(shape, (axis,), ((shape[1], 1), (shape[1], 1)))


def jobs(arch: str, launch: Callable[[Any], Any]) -> list[Job]:
    """What a launch on `arch` compiles."""
    null = get(f"null:{arch}")
    null.clear()
    launch(null)
    return [call.job for call in null.calls]


def sort_jobs(arch: str, dtype: str, shape: tuple[int, int], most: int = 99) -> Iterator[tuple[Any, Job]]:
    profile, rows = load_profile(arch), layout(dtype, shape)
    short = shape[1] <= longest(profile, rows)
    found: Any = tile_candidates(profile, rows, log_of(shape[1])) if short else radix_candidates(profile, rows)
    make: Any = sort_tiles if short else radix_sort
    for setting in found[:most]:
        yield from ((setting, j) for j in jobs(arch, lambda d, s=setting: make("sort", d, rows, s)(0, 0, 0)))


def topk_jobs(arch: str, dtype: str, shape: tuple[int, int], k: int, most: int = 99) -> Iterator[tuple[Any, Job]]:
    rows = layout(dtype, shape, k)
    for setting in selection_candidates(load_profile(arch), rows)[:most]:
        yield from ((setting, j) for j in jobs(arch, lambda d, s=setting: select("topk", d, rows, s)(0, 0, 0)))


def scan_jobs(arch: str, dtype: str, shape: tuple[int, int], most: int = 99) -> Iterator[tuple[Any, Job]]:
    x = nbx.empty(shape, dtype, f"null:{arch}")
    result = nbx.int64 if dtype == "int8" else x.dtype
    out, reduction, walk = nbx.empty(shape, result, x.device), sum_of(result), rows(shape)
    for setting in scan_candidates(walk, load_profile(arch), reduction.accumulator.itemsize)[:most]:
        how = scan_launches("cumulative_sum", reduction, x.dtype, result, x.device, walk, setting)
        yield from ((setting, j) for j in jobs(arch, lambda _, how=how: how.run(x, out, reduction.accumulator)))


def assert_no_stack(found: list[tuple[Any, Job]]) -> None:
    artifacts = compile_many([job for _, job in found])
    used = [(a.resources, job.fn.name, s) for (s, job), a in zip(found, artifacts, strict=True)]
    assert not [one for one in used if one[0].stack_bytes]


def test_first_candidates_have_no_stack() -> None:
    found = [
        *sort_jobs("sm_90", "float32", (4096, 128), 1),
        *topk_jobs("sm_90", "float32", (1, 151_936), 50, 1),
        *scan_jobs("sm_90", "float32", (1, 1 << 24), 1),
    ]
    assert {job.fn.name for _, job in found} == {
        "tile_sort_kernel", "group_best_kernel", "group_select_kernel", "cumulative_tile_kernel"
    }  # fmt: skip
    assert_no_stack(found)


@pytest.mark.slow
@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("kind", ["sort", "topk", "cumulative"])
def test_no_candidate_has_a_stack(kind: str, arch: str) -> None:
    if kind == "sort":
        found = [j for dtype in KINDS for shape in SORTED for j in sort_jobs(arch, dtype, shape)]
    elif kind == "topk":
        found = [j for dtype in KINDS for shape, k in SELECTED for j in topk_jobs(arch, dtype, shape, k)]
    else:
        found = [j for d in ("float32", "int8", "float64") for shape in SCANNED for j in scan_jobs(arch, d, shape)]
    assert_no_stack(found)


@pytest.mark.parametrize("arch", [*GPUS, "restricted", "x86-64-v3"])
def test_candidates_are_few_and_respect_the_profile(arch: str) -> None:
    profile = load_profile(arch)
    for dtype in KINDS:
        for shape in SORTED:
            here = layout(dtype, shape)
            if shape[1] <= longest(profile, here):
                tiles = tile_candidates(profile, here, log_of(shape[1]))
                assert 1 <= len(tiles) <= 8
                assert all(t.rows << log_of(shape[1]) <= profile.reduce_tile_max for t in tiles)
            passes = radix_candidates(profile, here)
            assert 1 <= len(passes) <= 8
            assert all(1 << r.log <= profile.reduce_tile_max for r in passes)
            assert all(256 * r.block <= profile.reduce_tile_max for r in passes)
        for shape, k in SELECTED:
            found = selection_candidates(profile, layout(dtype, shape, k))
            assert 1 <= len(found) <= 8
            assert all(1 << s.piece_log <= profile.reduce_tile_max for s in found)
            assert all(s.steps * 4 * profile.warp_size * s.num_warps <= profile.reduce_tile_max for s in found)
    for shape in SCANNED:
        scans = scan_candidates(rows(shape), profile)
        assert 1 <= len(scans) <= 8
        assert all(s.kept * s.tile // 16 <= profile.reduce_tile_max for s in scans)
    assert len(row_candidates(layout("float32", (1, 10_000)), 10_000)) == 2


def test_no_candidate_left_is_an_error() -> None:
    tiny = replace(load_profile("sm_90"), reduce_tile_max=32)
    wide = replace(load_profile("sm_90"), registers_per_thread=40)
    with pytest.raises(CompileError, match="no setting suits the device"):
        radix_candidates(tiny, layout("float32", (1, 20_000)))
    with pytest.raises(CompileError, match="tiles of at most 32 elements"):
        selection_candidates(tiny, layout("float32", (1, 20_000), 40))
    with pytest.raises(CompileError, match="40 registers"):
        tile_candidates(wide, layout("float32", (8, 1024)), 10)
    with pytest.raises(CompileError, match="no setting suits the device"):
        scan_candidates(rows((4, 4096)), tiny)


def test_which_candidates_come_first() -> None:
    gpu, cpu = load_profile("sm_90"), load_profile("x86-64-v3")
    assert selection_candidates(gpu, layout("float32", (1, 151_936), 50))[0].size == 16
    assert selection_candidates(gpu, layout("float32", (64, 151_936), 50))[0].size == 32
    assert selection_candidates(gpu, layout("float32", (65_536, 1024), 8))[0].size == 0
    assert scan_candidates(rows((1, 1 << 24)), gpu)[0].split
    assert not scan_candidates(rows((16_384, 4096)), gpu)[0].split
    assert not scan_candidates(rows((8192, 8192)), gpu)[0].split
    assert scan_candidates(rows((1000, 100_003)), gpu)[0].split
    assert radix_candidates(gpu, layout("float32", (1, 1 << 20)))[0].log == 9
    assert all(s.split for s in scan_candidates(rows((4096, 10_000)), gpu, 8))
    assert scan_candidates(rows((4096, 4096)), cpu)[0].serial
    assert row_candidates(layout("float32", (1, 10_000)), 10_000)[0] == (11, 3)
    assert row_candidates(layout("float16", (1, 10_000)), 10_000)[0] == (8, 2)
