"""Scans of tiles in the order of `nbxtensor.kernel.scan`: sixteen elements to a thread, totals across lanes."""

from nbxtensor.compiler.source import kernel, tl


@kernel
def _parts(x):
    """The 16 columns of x (A * 16 elements in order), each of A elements."""
    x = tl.reshape(x, (x.numel // 16, 2, 2, 2, 2))
    even, odd = tl.split(x)
    a, c = tl.split(even)
    b, d = tl.split(odd)
    a0, a4 = tl.split(a)
    b0, b4 = tl.split(b)
    c0, c4 = tl.split(c)
    d0, d4 = tl.split(d)
    x0, x8 = tl.split(a0)
    x4, x12 = tl.split(a4)
    x1, x9 = tl.split(b0)
    x5, x13 = tl.split(b4)
    x2, x10 = tl.split(c0)
    x6, x14 = tl.split(c4)
    x3, x11 = tl.split(d0)
    x7, x15 = tl.split(d4)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@kernel
def _whole(x):
    """The inverse of `_parts`."""
    a0, a4 = tl.join(x[0], x[8]), tl.join(x[4], x[12])
    b0, b4 = tl.join(x[1], x[9]), tl.join(x[5], x[13])
    c0, c4 = tl.join(x[2], x[10]), tl.join(x[6], x[14])
    d0, d4 = tl.join(x[3], x[11]), tl.join(x[7], x[15])
    even = tl.join(tl.join(a0, a4), tl.join(c0, c4))
    odd = tl.join(tl.join(b0, b4), tl.join(d0, d4))
    joined = tl.join(even, odd)
    return tl.reshape(joined, (joined.numel,))


@kernel
def _chains(x, COMBINE: tl.constexpr):
    """Chains over the parts: the k-th combines parts 0 to k."""
    s0 = x[0]
    s1 = COMBINE(s0, x[1])
    s2 = COMBINE(s1, x[2])
    s3 = COMBINE(s2, x[3])
    s4 = COMBINE(s3, x[4])
    s5 = COMBINE(s4, x[5])
    s6 = COMBINE(s5, x[6])
    s7 = COMBINE(s6, x[7])
    s8 = COMBINE(s7, x[8])
    s9 = COMBINE(s8, x[9])
    s10 = COMBINE(s9, x[10])
    s11 = COMBINE(s10, x[11])
    s12 = COMBINE(s11, x[12])
    s13 = COMBINE(s12, x[13])
    s14 = COMBINE(s13, x[14])
    s15 = COMBINE(s14, x[15])
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15


@kernel
def _after(base, s, COMBINE: tl.constexpr):
    """Each chain after `base`."""
    return (
        COMBINE(base, s[0]), COMBINE(base, s[1]), COMBINE(base, s[2]), COMBINE(base, s[3]),
        COMBINE(base, s[4]), COMBINE(base, s[5]), COMBINE(base, s[6]), COMBINE(base, s[7]),
        COMBINE(base, s[8]), COMBINE(base, s[9]), COMBINE(base, s[10]), COMBINE(base, s[11]),
        COMBINE(base, s[12]), COMBINE(base, s[13]), COMBINE(base, s[14]), COMBINE(base, s[15]),
    )  # fmt: skip


@kernel
def _before(base, s, COMBINE: tl.constexpr):
    """What precedes each part: `base`, then `base` with each chain but the last."""
    return (
        base, COMBINE(base, s[0]), COMBINE(base, s[1]), COMBINE(base, s[2]),
        COMBINE(base, s[3]), COMBINE(base, s[4]), COMBINE(base, s[5]), COMBINE(base, s[6]),
        COMBINE(base, s[7]), COMBINE(base, s[8]), COMBINE(base, s[9]), COMBINE(base, s[10]),
        COMBINE(base, s[11]), COMBINE(base, s[12]), COMBINE(base, s[13]), COMBINE(base, s[14]),
    )  # fmt: skip


@kernel
def _chains_across(t, COMBINE: tl.constexpr):
    """For t as rows of 16: the chain before each element but the first, (A, 16), and the whole chains (A,).

    Every lane works out all sixteen steps: the totals are few, and this keeps one value in each lane.
    """
    rows = tl.reshape(t, (t.numel // 16, 16))
    column = tl.arange(0, 16)[None, :]
    chain = tl.gather(rows, tl.full(rows.shape, 0, tl.int32), 1)
    before = rows
    for k in tl.static_range(1, 16):
        before = tl.where(column == k, chain, before)
        chain = COMBINE(chain, tl.gather(rows, tl.full(rows.shape, k, tl.int32), 1))
    if t.dtype.primitive_bitwidth == 64:
        bits = chain.to(tl.int64, bitcast=True)
    else:
        bits = chain.to(tl.int32, bitcast=True)
    return before, tl.max(bits, 1).to(t.dtype, bitcast=True)  # all sixteen are the same


@kernel
def _start_across(base, before, COMBINE: tl.constexpr):
    """What precedes each element of the rows of `_chains_across` after `base` (A,), flat."""
    column = tl.arange(0, 16)[None, :]
    start = base[:, None]
    r = tl.where(column == 0, tl.broadcast_to(start, before.shape), COMBINE(start, before))
    return tl.reshape(r, (r.numel,))


@kernel
def scan_tile(x, base, LEVEL: tl.constexpr, COMBINE: tl.constexpr, EXCLUSIVE: tl.constexpr):
    """Scan each row of x (KEPT, 16^LEVEL) after `base` (KEPT,): the scan, and the totals of the rows (KEPT,)."""
    first = _chains(_parts(x), COMBINE)
    total = first[15]
    start = base
    if LEVEL == 2:
        second, total = _chains_across(total, COMBINE)
        start = _start_across(base, second, COMBINE)
    elif LEVEL == 3:
        second, total = _chains_across(total, COMBINE)
        third, total = _chains_across(total, COMBINE)
        start = _start_across(_start_across(base, third, COMBINE), second, COMBINE)
    if EXCLUSIVE:
        r = _whole(_before(start, first, COMBINE))
    else:
        r = _whole(_after(start, first, COMBINE))
    return tl.reshape(r, x.shape), total


@kernel
def tile_total(x, LEVEL: tl.constexpr, COMBINE: tl.constexpr):
    """The totals of the rows of x (KEPT, 16^LEVEL)."""
    total = _chains(_parts(x), COMBINE)[15]
    for _ in tl.static_range(LEVEL - 1):
        _before_each, total = _chains_across(total, COMBINE)
    return total


@kernel
def block_before(totals, block, empty, SIZE: tl.constexpr, COMBINE: tl.constexpr):
    """What precedes a block (1,) among at most SIZE (16 or 256) in a row, whose totals lie at `totals`."""
    i = tl.arange(0, SIZE)
    before = tl.where(i < block, tl.load(totals + i, mask=i < block), empty)
    _, chain = _chains_across(before, COMBINE)
    if SIZE == 256:
        _, chain = _chains_across(chain, COMBINE)
    return chain


@kernel
def _move_up(lower, upper, done, SIZE: tl.constexpr, empty, COMBINE: tl.constexpr):
    """The chains of two neighbouring levels after `done` blocks: `lower` joins `upper` once it holds SIZE blocks."""
    if done % SIZE == 0:
        upper = COMBINE(upper, lower)
        lower = empty
    return lower, upper


@kernel
def carry(c, above, start, total, done, empty, COMBINE: tl.constexpr):
    """The chains of the levels, and the prefix of all but the first, after `done` blocks; `total` is the last one's."""
    c0, c1, c2, c3, c4, c5, c6 = c
    c0 = COMBINE(c0, total)
    if done % 16 == 0:
        c1 = COMBINE(c1, c0)
        c0 = empty
        c1, c2 = _move_up(c1, c2, done, 256, empty, COMBINE)
        c2, c3 = _move_up(c2, c3, done, 4096, empty, COMBINE)
        c3, c4 = _move_up(c3, c4, done, 65536, empty, COMBINE)
        c4, c5 = _move_up(c4, c5, done, 1048576, empty, COMBINE)
        c5, c6 = _move_up(c5, c6, done, 16777216, empty, COMBINE)
        above = COMBINE(COMBINE(COMBINE(start, c6), c5), c4)
        above = COMBINE(COMBINE(COMBINE(above, c3), c2), c1)
    return (c0, c1, c2, c3, c4, c5, c6), above
