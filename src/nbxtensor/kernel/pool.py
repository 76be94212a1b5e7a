"""The kernel of pooling: places beside each other, taps one after the other in row-major order."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast, maximum, quotient
from nbxtensor.kernel.window import inside, line_tile, minus_zero, split_tap, tap_offset


@kernel
def _pool_step(
    x, acc, at, at_x, start, sizes, dilation, walk,
    MEAN: tl.constexpr, LOWEST: tl.constexpr, TAPS: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr,
    TYPE: tl.constexpr,
):  # fmt: skip
    """Take tap `at` into the accumulators of a tile."""
    _, t0, t1, t2 = split_tap(at, TAPS)
    pointers = x + tap_offset(t0, t1, t2, walk[0], walk[1], SPLIT) + at_x
    if PAD[0] or PAD[1] or PAD[2]:
        at0 = t0 * dilation[0] + start[0]
        at1 = t1 * dilation[1] + start[1]
        at2 = t2 * dilation[2] + start[2]
        mask = inside(at0, at1, at2, sizes, PAD)
        if MEAN:
            value = tl.where(mask, cast(tl.load(pointers, mask=mask, other=0), TYPE), minus_zero(TYPE))
        else:
            value = cast(tl.load(pointers, mask=mask, other=LOWEST), TYPE)
    else:
        value = cast(tl.load(pointers), TYPE)
    if MEAN:
        acc = acc + value
    else:
        acc = maximum(acc, value)
    return acc


@kernel
def _covered(start, taps, low, high):
    """How many of the taps from `start` on lie between `low` and `high`."""
    return tl.minimum(start + taps, high) - tl.maximum(start, low)


@kernel
def pool_kernel(
    x, out, rows, channels, x_origin, x_batch, x_channel, x_place, x_tap, x_phase,
    sizes, places, stride, dilation, before, low, high,
    MEAN: tl.constexpr, LOWEST: tl.constexpr, TYPE: tl.constexpr, TAPS: tl.constexpr, SPLIT: tl.constexpr,
    PAD: tl.constexpr, PARTIAL: tl.constexpr, X_UNIT: tl.constexpr, UNROLL: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr, R_TAIL: tl.constexpr, C_TAIL: tl.constexpr, OVERRUN: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """Maxima, or (MEAN) means over the taps between `low` and `high`; LOWEST is the maximum of nothing.

    PARTIAL: some windows cover fewer elements than taps; UNROLL: the taps are written out.
    """
    image, p0, p1, p2, offsets, stored = line_tile(rows, places, BR, BC, R_TAIL, C_TAIL, OVERRUN, DEEP)
    x += x_origin + image // channels * x_batch + image % channels * x_channel
    at_x = p0 * x_place[0] + p1 * x_place[1]
    if X_UNIT:
        at_x = at_x + p2
    else:
        at_x = at_x + p2 * x_place[2]
    start = (p0 * stride[0] - before[0], p1 * stride[1] - before[1], p2 * stride[2] - before[2])
    walk = (x_tap, x_phase)
    COUNT: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    if MEAN:
        acc = tl.broadcast_to(minus_zero(TYPE), (BR, BC))
    else:
        acc = tl.full((BR, BC), LOWEST, TYPE)
    if UNROLL:
        for at in tl.static_range(COUNT):
            acc = _pool_step(x, acc, at, at_x, start, sizes, dilation, walk, MEAN, LOWEST, TAPS, SPLIT, PAD, TYPE)
    else:
        for at in range(COUNT):
            acc = _pool_step(x, acc, at, at_x, start, sizes, dilation, walk, MEAN, LOWEST, TAPS, SPLIT, PAD, TYPE)
    if MEAN:
        if PARTIAL:
            count = _covered(start[0], TAPS[0], low[0], high[0])
            count = count * _covered(start[1], TAPS[1], low[1], high[1])
            count = count * _covered(start[2], TAPS[2], low[2], high[2])
            divisor = tl.broadcast_to(cast(count, TYPE), (BR, BC))
        else:
            divisor = tl.full((BR, BC), COUNT, TYPE)
        acc = quotient(acc, divisor)
    value = cast(acc, out.dtype.element_ty)
    if R_TAIL or C_TAIL:
        tl.store(out + offsets, value, mask=stored)
    else:
        tl.store(out + offsets, value)
