"""How kernels with sliding windows walk: lines of places, taps of the window, coordinates in the input.

There are always three spatial axes (absent ones have one element and one tap). Tiles that would leave the output move
back until they fit and compute some elements a second time, with the same bits: so whole tiles need no mask.
"""

from nbxtensor.compiler.source import kernel, tl


@kernel
def split_tap(k, TAPS: tl.constexpr):
    """Channel and tap indices of position `k` of the chain."""
    rest = k // TAPS[2]
    c = k - rest * TAPS[2]
    above = rest // TAPS[1]
    b = rest - above * TAPS[1]
    channel = above // TAPS[0]
    a = above - channel * TAPS[0]
    return channel, a, b, c


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
def line_tile(out, lines, places, BR: tl.constexpr, BC: tl.constexpr, R_TAIL: tl.constexpr, C_TAIL: tl.constexpr):
    """The tile of a program: lines (all axes but the last, flat) by places on the last axis.

    Returns indices of both (within bounds), the pointers of the results and which of them there are. R_TAIL, C_TAIL:
    there are fewer lines or places than the tile has.
    """
    blocks = (places[2] + (BC - 1)) // BC
    program = tl.program_id(0).to(tl.int64)
    first = program % blocks * BC
    line = program // blocks * BR
    if not C_TAIL:
        first = tl.minimum(first, places[2] - BC)
    if not R_TAIL:
        line = tl.minimum(line, lines - BR)
    r = (line + tl.arange(0, BR))[:, None]
    p2 = (first + tl.arange(0, BC))[None, :]
    pointers = out + r * places[2] + p2
    stored = (r < lines) & (p2 < places[2])
    if R_TAIL:
        r = tl.minimum(r, lines - 1)
    if C_TAIL:
        p2 = tl.minimum(p2, places[2] - 1)
    return r, p2, pointers, stored
