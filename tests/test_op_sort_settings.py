"""The candidates of the sort family and of running sums: what a profile allows, and kernels that need no stack."""

from dataclasses import replace
from typing import Any

import pytest
from tools.candidates import (
    KINDS,
    SCANNED,
    SELECTED,
    SORTED,
    jobs,
    layout,
    rows,
    scan_choices,
    sort_choices,
    topk_choices,
)

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import known_profiles, load_profile, target_of
from nbxtensor.kernel.scan_settings import candidates as scan_candidates
from nbxtensor.ops.sort.settings import (
    log_of,
    longest,
    radix_candidates,
    row_candidates,
    selection_candidates,
    tile_candidates,
)

GPUS = [name for name in known_profiles() if target_of(name).kind in ("cuda", "hip")]


def found_for(arch: str, *spaces: Any) -> list[tuple[Any, Job]]:
    """Settings and jobs of what spaces of candidates launch on `arch`."""
    null = NullDevice(target_of(arch))
    return [(setting, job) for space in spaces for _, setting, job in jobs(null, space(null))]


def assert_no_stack(found: list[tuple[Any, Job]]) -> None:
    artifacts = compile_many([job for _, job in found])
    used = [(a.resources, job.fn.name, s) for (s, job), a in zip(found, artifacts, strict=True)]
    assert not [one for one in used if one[0].stack_bytes]


def test_first_candidates_have_no_stack() -> None:
    found = found_for(
        "sm_90",
        lambda d: sort_choices(d, ("float32",), ((4096, 128),), most=1),
        lambda d: topk_choices(d, ("float32",), (((1, 151_936), 50),), most=1),
        lambda d: scan_choices(d, ("float32",), ((1, 1 << 24),), most=1),
    )
    assert {job.fn.name for _, job in found} == {
        "tile_sort_kernel", "group_best_kernel", "group_select_kernel", "cumulative_tile_kernel"
    }  # fmt: skip
    assert_no_stack(found)


@pytest.mark.slow
@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("space", [sort_choices, topk_choices, scan_choices])
def test_no_candidate_has_a_stack(space: Any, arch: str) -> None:
    assert_no_stack(found_for(arch, space))


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
