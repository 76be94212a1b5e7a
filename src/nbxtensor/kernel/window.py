"""How kernels with sliding windows walk: lines of places, taps of the window, coordinates in the input.

An input may be laid out first (`lay_out_kernel`): padded, and along each axis split by its stride into phases, so that
neighbouring places see neighbouring elements. Where programs are plain code that makes every load a plain vector.

There are always three spatial axes (absent ones have one element and one tap). Tiles that would leave the output move
back until they fit and compute some elements a second time, with the same bits: so whole tiles need no mask.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast


@kernel
def split_tap(k, TAPS: tl.constexpr):
    """Channel and tap indices of position `k` of the chain."""
    above = k // TAPS[2]
    first = above // TAPS[1]
    return first // TAPS[0], first % TAPS[0], above % TAPS[1], k % TAPS[2]


@kernel
def _inside(mask, used, at, size):
    """`mask` and that `at` lies in an axis of `size`; `used` says whether `mask` holds anything yet."""
    here = (at >= 0) & (at < size)
    if used:
        here = mask & here
    return here


@kernel
def inside(a, b, c, sizes, PAD: tl.constexpr):
    """Which coordinates lie in the input, along the axes in PAD (at least one)."""
    mask = a
    if PAD[0]:
        mask = _inside(mask, False, a, sizes[0])
    if PAD[1]:
        mask = _inside(mask, PAD[0], b, sizes[1])
    if PAD[2]:
        mask = _inside(mask, PAD[0] or PAD[1], c, sizes[2])
    return mask


@kernel
def line_tile(
    rows, places, BR: tl.constexpr, BC: tl.constexpr, R_TAIL: tl.constexpr, C_TAIL: tl.constexpr,
    OVERRUN: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    """The tile of a program: lines of one image (and channel) by places on the last axis.

    R_TAIL, C_TAIL: there are fewer of them than the tile has; those beyond the last are the last again, or (OVERRUN)
    what follows in memory. DEEP: there is more than one place on the first axis.

    Returns the image, places on the three axes, offsets of the results and which of them there are. Bounds of all of
    them can be seen from the operations: where an input and a result lie apart, the compiler must be able to tell.
    """
    column_blocks = (places[2] + (BC - 1)) // BC
    row_blocks = (rows + (BR - 1)) // BR
    program = tl.program_id(0).to(tl.int64)
    first = program % column_blocks * BC
    program = program // column_blocks
    row = program % row_blocks * BR
    image = program // row_blocks
    if not C_TAIL:
        first = tl.minimum(first, places[2] - BC)
    if not R_TAIL:
        row = tl.minimum(row, rows - BR)
    r = (row + tl.arange(0, BR))[:, None]
    p2 = (first + tl.arange(0, BC))[None, :]
    offsets = (image * rows + r) * places[2] + p2
    stored = (r < rows) & (p2 < places[2])
    if R_TAIL:
        r = tl.minimum(r, rows - 1)
    if C_TAIL and not OVERRUN:
        p2 = tl.minimum(p2, places[2] - 1)
    if DEEP:
        p0 = tl.minimum(r // places[1], places[0] - 1)
        p1 = r % places[1]
    else:
        p0 = r * 0
        p1 = r
    return image, p0, p1, p2, offsets, stored


@kernel
def tap_offset(t0, t1, t2, x_tap, x_phase, SPLIT: tl.constexpr):
    """Offset of a tap. SPLIT: stride and dilation of each axis where the input is laid out, else ones."""
    if SPLIT[0] * SPLIT[1] * SPLIT[2] == 1:
        offset = t0 * x_tap[0] + t1 * x_tap[1] + t2 * x_tap[2]
    else:
        t0 = t0 * SPLIT[3]
        t1 = t1 * SPLIT[4]
        t2 = t2 * SPLIT[5]
        offset = t0 // SPLIT[0] * x_tap[0] + t0 % SPLIT[0] * x_phase[0]
        offset += t1 // SPLIT[1] * x_tap[1] + t1 % SPLIT[1] * x_phase[1]
        offset += t2 // SPLIT[2] * x_tap[2] + t2 % SPLIT[2] * x_phase[2]
    return offset


@kernel
def minus_zero(TYPE: tl.constexpr):
    """-0.0, which changes nothing that it is added to (a literal -0.0 in a kernel becomes 0.0)."""
    if tl.float64 == TYPE:
        zero = tl.full((), -9223372036854775808, tl.int64).to(tl.float64, bitcast=True)
    else:
        zero = tl.full((), -2147483648, tl.int32).to(tl.float32, bitcast=True)
    return zero


@kernel
def lay_out_kernel(
    x, out, channels, rows, row_blocks, column_blocks, x_batch, x_channel, x_steps, sizes, lines, before,
    STEP: tl.constexpr, DEEP: tl.constexpr, X_UNIT: tl.constexpr, FILL: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Copy a tile of one channel of one image to (phases, *lines); FILL (None: -0.0) lies around the input.

    `rows` are the phases of all axes and the lines of all axes but the last. DEEP: there is more than one line on the
    first axis.
    """
    PHASES: tl.constexpr = STEP[0] * STEP[1] * STEP[2]
    program = tl.program_id(0).to(tl.int64)
    column = program % column_blocks * BC
    program = program // column_blocks
    row = program % row_blocks * BR
    image = program // row_blocks
    index = image // channels
    x += index * x_batch + (image - index * channels) * x_channel
    r = row + tl.arange(0, BR)
    if DEEP:
        at0 = r // lines[1] % lines[0] * STEP[0]
        phase = r // (lines[0] * lines[1]) % PHASES
    else:
        at0 = r * 0
        phase = r // lines[1] % PHASES
    if DEEP or PHASES > 1:
        at1 = r % lines[1] * STEP[1]
    else:
        at1 = r
    at0 = at0 + phase // (STEP[1] * STEP[2]) % STEP[0] - before[0]
    at1 = at1 + phase // STEP[2] % STEP[1] - before[1]
    h2 = (column + tl.arange(0, BC))[None, :]
    at2 = h2 * STEP[2] + ((phase % STEP[2])[:, None] - before[2])
    from_rows = (at0 >= 0) & (at0 < sizes[0]) & (at1 >= 0) & (at1 < sizes[1])
    mask = from_rows[:, None] & (at2 >= 0) & (at2 < sizes[2])
    offsets = (at0 * x_steps[0] + at1 * x_steps[1])[:, None]
    if X_UNIT:
        pointers = x + offsets + at2
    else:
        pointers = x + offsets + at2 * x_steps[2]
    if FILL is None:
        value = tl.load(pointers, mask=mask, other=0.0)
        value = tl.where(mask, value, cast(minus_zero(tl.float64), value.dtype))
    else:
        value = tl.load(pointers, mask=mask, other=FILL)
    inside = (r < rows)[:, None] & (h2 < lines[2])
    tl.store(out + ((image * rows + r) * lines[2])[:, None] + h2, value, mask=inside)
