"""Reductions across memory in parts: the bits of the canonical order, and nothing beyond the result is written."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of
from nbxtensor.kernel.launch import Call
from nbxtensor.kernel.reduce import Reduction, as_is
from nbxtensor.kernel.reduce_launch import launches_of
from nbxtensor.kernel.reduce_settings import Parts, candidates
from nbxtensor.kernel.rows import passes_of
from nbxtensor.ops.max import extremum
from nbxtensor.ops.sum import sum_of
from nbxtensor.tensor.tensor import Tensor
from rows_helpers import bits, canonical_sum

RNG = np.random.default_rng(0)
POISON = 85
MARGIN = 64


def reduced(name: str, reduction: Reduction, x: Tensor, axis: int | tuple[int, ...], out: Any, parts: Parts) -> Any:
    """`x` reduced with one setting; every buffer is poisoned before, and its ends after, which must stay."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    first, *later = passes_of(x.shape, x.strides, axes)
    assert first.axis == 0
    kind = reduction.accumulator if later else out
    launches = list(launches_of(name, reduction, x.dtype, kind, x.device, first, first.length, parts))
    if later:
        again, accumulator = replace(reduction, prepare=as_is), reduction.accumulator
        (rows,) = later
        setting = candidates(name, True, rows, x.device.profile, accumulator.itemsize)[0]
        launches += launches_of(name, again, accumulator, out, x.device, rows, first.length, setting)
    source, left = x.ptr, x
    for plan, count in launches:
        size = plan.arguments["out"].dtype.itemsize  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        left = nbx.full((count * size + 2 * MARGIN,), POISON, dtype="uint8", device=x.device)
        plan.run(source, left.ptr + MARGIN)
        source = left.ptr + MARGIN
        edges = left.numpy()
        assert (edges[:MARGIN] == POISON).all()
        assert (edges[-MARGIN:] == POISON).all()
    return left.numpy()[MARGIN:-MARGIN].view(out.numpy)


def settings(n: int) -> list[Parts]:
    """Few and many parts of a row of `n` elements, one tile at a time and several."""
    tile = min(2048, 1 << (n - 1).bit_length())
    tried = [(16, 4, 1), (8, 8, 2), (16, 16, 1), (32, 8, 4)]
    return [Parts(kept, lanes, tile // lanes, 1, tiles) for kept, lanes, tiles in tried if tile // lanes <= 256]


SHAPES = (
    ((4096, 32), (0,)),
    ((2049, 37), (0,)),
    ((3, 100, 16), (1,)),
    ((20_493, 17), (0,)),
    ((65_541, 9), (0,)),
    ((3, 50, 2, 60, 20), (1, 3)),
)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_have_the_canonical_bits(shape: tuple[int, ...], axes: tuple[int, ...], device: str) -> None:
    whole = RNG.standard_normal((*shape[:-1], shape[-1] + 1)).astype(np.float32) * 100
    whole[..., 1] = -0.0
    kept = [d for d in range(len(shape)) if d not in axes]
    for x in (nbx.asarray(whole[..., 1:].copy(), device=device), nbx.asarray(whole, device=device)[..., 1:]):
        moved = whole[..., 1:].transpose((*kept, *axes))
        want = canonical_sum(np.ascontiguousarray(moved).reshape(-1, int(np.prod([shape[d] for d in axes]))))
        for parts in settings(int(np.prod([shape[d] for d in axes]))):
            got = reduced("sum", sum_of(dtypes.float32), x, axes, dtypes.float32, parts)
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=str(parts))


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint8"])
def test_other_accumulators(dtype: str, device: str) -> None:
    x = (RNG.standard_normal((2500, 35)) * 50).astype(dtype)
    out = dtypes.float64 if dtype == "float64" else dtypes.int64
    want = canonical_sum(x.T.copy()) if dtype == "float64" else x.sum(0, np.int64)
    for parts in settings(2500):
        t = nbx.asarray(x, device=device)
        np.testing.assert_array_equal(reduced("sum", sum_of(out), t, 0, out, parts), want)
        np.testing.assert_array_equal(reduced("max", extremum(t.dtype, True), t, 0, t.dtype, parts), x.max(0))


def test_maxima_of_special_values(device: str) -> None:
    x = RNG.choice(np.array([0.0, -0.0, np.inf, -np.inf, 1.5, -2.0], np.float32), (3000, 40))
    x[:, 0], x[:, 1], x[2999, 2], x[:, 3] = -np.inf, -0.0, np.nan, np.where(np.arange(3000) == 7, 0.0, -0.0)
    t = nbx.asarray(x, device=device)
    want = bits(nbx.max(nbx.asarray(x.T.copy(), device=device), axis=1))
    for parts in settings(3000):
        np.testing.assert_array_equal(bits(reduced("max", extremum(t.dtype, True), t, 0, t.dtype, parts)), want)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "prod", "any"])
def test_large_operands(name: str, device: str) -> None:
    """What is in parts where it is run on a GPU; the rows of the transposed operand never are."""
    x = nbx.asarray(1 + RNG.standard_normal((1025, 4099)).astype(np.float32) / 1000, device=device)
    function = getattr(nbx, name)
    turned = nbx.asarray(x.numpy().T.copy(), device=device)
    np.testing.assert_array_equal(bits(function(x, axis=0)), bits(function(turned, axis=1)))


def test_large_operands_are_reduced_in_parts_on_gpus() -> None:
    null = NullDevice(target_of("sm_90"))
    for shape, axis, launches in (((4096, 16_384), 0, 2), ((512, 1024), 0, 1), ((4096, 16_384), 1, 1)):
        null.clear()
        nbx.sum(nbx.empty(shape, dtype="float32", device=null), axis=axis)
        assert len([c for c in null.calls if isinstance(c, Call)]) == launches, shape
