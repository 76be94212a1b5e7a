"""Kernels of convolution: one chain of fused multiply-adds for each output element.

Position k of the chain is (channel, tap) in row-major order; the chain is cut into chunks of 512, whose sums are added
in order to a total that starts at +0.0. Taps on padding multiply +0.0. Steps 0 * 0 may be put in anywhere: they can
only turn an accumulator of -0.0 into +0.0, and the total is +0.0 either way. Neither tiles nor layout change a bit.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.window import inside, line_tile, split_tap, tap_offset


@kernel
def _conv_step(
    x, w, acc, at, k, w_rows, columns, start, sizes, dilation, x_channel, x_tap, x_phase, w_channel, w_tap,
    BK: tl.constexpr, TAPS: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr, W_UNIT: tl.constexpr,
    K_TAIL: tl.constexpr,
):  # fmt: skip
    """Continue the chains of a tile by the BK positions from `at`; positions from `k` on add 0 * 0."""
    i = tl.arange(0, BK)
    channel, t0, t1, t2 = split_tap(at.to(tl.int32) + i, TAPS)
    if W_UNIT:
        w_pointers = (w + at) + w_rows[:, None] + i[None, :]
    else:
        w_pointers = w + w_rows[:, None] + (
            channel * w_channel + t0 * w_tap[0] + t1 * w_tap[1] + t2 * w_tap[2]
        )[None, :]  # fmt: skip
    taps = channel * x_channel + tap_offset(t0, t1, t2, x_tap, x_phase, SPLIT)
    x_pointers = x + taps[:, None] + columns
    PADDED: tl.constexpr = PAD[0] or PAD[1] or PAD[2]
    if PADDED:
        mask = inside(
            (t0 * dilation[0])[:, None] + start[0],
            (t1 * dilation[1])[:, None] + start[1],
            (t2 * dilation[2])[:, None] + start[2],
            sizes,
            PAD,
        )
    if K_TAIL:
        before = at + i < k
        u = tl.load(w_pointers, mask=before[None, :], other=0.0)
        if PADDED:
            v = tl.load(x_pointers, mask=mask & before[:, None], other=0.0)
        else:
            v = tl.load(x_pointers, mask=before[:, None], other=0.0)
    else:
        u = tl.load(w_pointers)
        if PADDED:
            v = tl.load(x_pointers, mask=mask, other=0.0)
        else:
            v = tl.load(x_pointers)
    return tl.dot(u.to(tl.float32), v.to(tl.float32), acc, input_precision="ieee")


@kernel
def conv_kernel(
    x, w, bias, out, m, k, row_tiles, column_tiles, positions, x_group, x_origin, x_batch, x_channel, x_place, x_tap,
    x_phase, w_row, w_channel, w_tap, bias_step, out_batch, pitch, sizes, places, stride, dilation, before,
    PLANE: tl.constexpr, TAPS: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr, W_UNIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHUNK: tl.constexpr, K_TAIL: tl.constexpr,
    M_TAIL: tl.constexpr, N_TAIL: tl.constexpr,
):  # fmt: skip
    """One tile of output channels (rows, of one group) by positions (columns).

    PLANE 0: columns are `positions` places of all images. PLANE 1, 2: columns are elements of one image, `positions` of
    them, that lie one after the other in memory in lines of `pitch`; of those that are no places (2: there are some)
    the results are dropped. M_TAIL, N_TAIL: there are fewer rows or columns than the tile has.
    """
    program = tl.program_id(0).to(tl.int64)
    tiles = (positions + (BN - 1)) // BN
    tile = program % column_tiles
    program = program // column_tiles
    group = program // row_tiles
    row = program % row_tiles * BM
    image = places[0] * places[1] * places[2]
    x += group * x_group + x_origin
    if PLANE > 0:
        index = tile // tiles
        tile = tile - index * tiles
    first = tile * BN
    if not N_TAIL:
        first = tl.minimum(first, positions - BN)
    q = (first + tl.arange(0, BN))[None, :]
    stored = q < positions
    if N_TAIL:
        q = tl.minimum(q, positions - 1)
    if PLANE > 0:
        x += index * x_batch
        columns = q
        out_columns = index * out_batch + q
        if PLANE == 2:
            rest = q // pitch[2]
            p2 = q - rest * pitch[2]
            p0 = rest // pitch[1]
            p1 = rest - p0 * pitch[1]
            stored = stored & (p2 < places[2]) & (p1 < places[1])
            out_columns = index * out_batch + ((p0 * places[1] + p1) * places[2] + p2)
        start = (q, q, q)
    else:
        rest = q // places[2]
        p2 = q - rest * places[2]
        above = rest // places[1]
        p1 = rest - above * places[1]
        index = above // places[0]
        p0 = above - index * places[0]
        columns = index * x_batch + p0 * x_place[0] + p1 * x_place[1] + p2 * x_place[2]
        out_columns = index * (out_batch - image) + q
        start = (p0 * stride[0] - before[0], p1 * stride[1] - before[1], p2 * stride[2] - before[2])

    if not M_TAIL:
        row = tl.minimum(row, m - BM)
    rows = row + tl.arange(0, BM)
    bounded = rows
    if M_TAIL:
        bounded = tl.minimum(rows, m - 1)
    w_rows = (group * m + bounded) * w_row

    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, k, CHUNK):
        end = tl.minimum(begin + CHUNK, k)
        acc = tl.zeros((BM, BN), tl.float32)
        whole = begin + (end - begin) // BK * BK
        for at in range(begin, whole, BK):
            acc = _conv_step(
                x, w, acc, at, k, w_rows, columns, start, sizes, dilation, x_channel, x_tap, x_phase, w_channel, w_tap,
                BK, TAPS, SPLIT, PAD, W_UNIT, False,
            )  # fmt: skip
        if K_TAIL:  # noqa: SIM102 - a constant, the inner one is not
            if whole < end:
                acc = _conv_step(
                    x, w, acc, whole, k, w_rows, columns, start, sizes, dilation, x_channel, x_tap, x_phase, w_channel,
                    w_tap, BK, TAPS, SPLIT, PAD, W_UNIT, True,
                )  # fmt: skip
        total += acc
    if bias is not None:
        total += tl.load(bias + (group * m + bounded) * bias_step).to(tl.float32)[:, None]
    pointers = out + ((group * m + rows) * image)[:, None] + out_columns
    value = cast(total, out.dtype.element_ty)
    if M_TAIL and (N_TAIL or PLANE == 2):
        tl.store(pointers, value, mask=(rows < m)[:, None] & stored)
    elif M_TAIL:
        tl.store(pointers, value, mask=(rows < m)[:, None])
    elif N_TAIL or PLANE == 2:
        tl.store(pointers, value, mask=stored)
    else:
        tl.store(pointers, value)


@kernel
def _direct_step(
    x, w, acc, at, at_x, start, sizes, dilation, walk,
    TAPS: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Continue the chains of a tile by position `at`."""
    channel, t0, t1, t2 = split_tap(at, TAPS)
    taps = channel * walk[0] + tap_offset(t0, t1, t2, walk[1], walk[2], SPLIT)
    factors = w + (channel * walk[3] + t0 * walk[4][0] + t1 * walk[4][1] + t2 * walk[4][2])
    pointers = x + taps + at_x
    if PAD[0] or PAD[1] or PAD[2]:
        at0 = t0 * dilation[0] + start[0]
        at1 = t1 * dilation[1] + start[1]
        at2 = t2 * dilation[2] + start[2]
        v = tl.load(pointers, mask=inside(at0, at1, at2, sizes, PAD), other=0.0)
    else:
        v = tl.load(pointers)
    u = tl.broadcast_to(cast(tl.load(factors), TYPE), acc.shape)
    return tl.fma(u, tl.broadcast_to(cast(v, TYPE), acc.shape), acc)


@kernel
def conv_direct_kernel(
    x, w, bias, out, m, k, channels, rows, x_group, x_origin, x_batch, x_channel, x_place, x_tap, x_phase,
    w_row, w_channel, w_tap, bias_step, sizes, places, stride, dilation, before,
    TYPE: tl.constexpr, TAPS: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr, X_UNIT: tl.constexpr,
    UNROLL: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, CHUNK: tl.constexpr, R_TAIL: tl.constexpr,
    C_TAIL: tl.constexpr, OVERRUN: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """A tile of one output channel of one image, element by element; see `line_tile`.

    UNROLL: length of the chain where it is one chunk, written out; else 0.
    """
    image, p0, p1, p2, offsets, stored = line_tile(rows, places, BR, BC, R_TAIL, C_TAIL, OVERRUN, DEEP)
    channel = image % channels
    x += x_origin + image // channels * x_batch + channel // m * x_group
    w += channel * w_row
    at_x = p0 * x_place[0] + p1 * x_place[1]
    if X_UNIT:
        at_x = at_x + p2
    else:
        at_x = at_x + p2 * x_place[2]
    start = (p0 * stride[0] - before[0], p1 * stride[1] - before[1], p2 * stride[2] - before[2])
    walk = (x_channel, x_tap, x_phase, w_channel, w_tap)
    total = tl.zeros((BR, BC), TYPE)
    if UNROLL:
        acc = total
        for at in tl.static_range(UNROLL):
            acc = _direct_step(x, w, acc, at, at_x, start, sizes, dilation, walk, TAPS, SPLIT, PAD, TYPE)
        total += acc
    else:
        for begin in range(0, k, CHUNK):
            acc = tl.zeros((BR, BC), TYPE)
            for at in range(begin, tl.minimum(begin + CHUNK, k)):
                acc = _direct_step(x, w, acc, at, at_x, start, sizes, dilation, walk, TAPS, SPLIT, PAD, TYPE)
            total += acc
    if bias is not None:
        total += cast(tl.load(bias + channel * bias_step), TYPE)
    value = cast(total, out.dtype.element_ty)
    if R_TAIL or C_TAIL:
        tl.store(out + offsets, value, mask=stored)
    else:
        tl.store(out + offsets, value)
