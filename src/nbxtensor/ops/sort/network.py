"""Sorting networks over tiles in registers.

A tile of ``rows x 2^LOG`` is seen as a hypercube: one axis for the rows, then one axis of size 2 for each bit of the
position in the row, highest first. A bitonic network compares neighbours along one of these axes at a time. Which bit
of the *sorted* position an axis stands for is free, since what is sorted carries its own index. The lowest bits of the
sorted position take part in the most steps, so they go to the axes that lie inside one thread, where a step is one or
two instructions and no exchange.

NET is ``(LOG, LOW, SPREAD, KEEP)``. LOW and SPREAD say where a tile lies: 2^LOW neighbours in one thread, then 2^SPREAD
threads, then more of each thread. They change the speed only; SPREAD = 0 where threads do not exist. Of each row the
first 2^KEEP in order are kept: once blocks of that size are sorted, the better half of two of them is taken and sorted
again until one is left.

Elements must be distinct: either `x` is, or (PAIR) the pairs of `x` and `i`, compared in that order. A block that is
to be sorted downwards is complemented instead (`~` reverses the order), so that every comparison is the same.
"""

from nbxtensor.compiler.source import kernel, tl


@kernel
def _xor(a, b):
    return a ^ b


@kernel
def _smaller(a, b):
    return tl.where(a < b, a, b)


# A bit of the sorted position is a low bit of the tile, or lies behind the threads, or (the highest) names the thread.


@kernel
def along(BIT: tl.constexpr, NET: tl.constexpr):
    """0 and 1 along the axis of one bit."""
    LOG: tl.constexpr = NET[0]
    AXIS: tl.constexpr = LOG - BIT - (NET[1] <= BIT) * NET[2] + (LOG - NET[2] <= BIT) * (LOG - NET[1])
    return tl.reshape(tl.arange(0, 2), [1] * AXIS + [2] + [1] * (LOG - AXIS))


@kernel
def _both(x, BIT: tl.constexpr, NET: tl.constexpr):
    """Exclusive or of the neighbours along the axis of one bit, which gets size 1."""
    LOG: tl.constexpr = NET[0]
    AXIS: tl.constexpr = LOG - BIT - (NET[1] <= BIT) * NET[2] + (LOG - NET[2] <= BIT) * (LOG - NET[1])
    return tl.reduce(x, AXIS, _xor, keep_dims=True)


@kernel
def _least(x, BIT: tl.constexpr, NET: tl.constexpr):
    """The smaller of the neighbours along the axis of one bit, which gets size 1."""
    LOG: tl.constexpr = NET[0]
    AXIS: tl.constexpr = LOG - BIT - (NET[1] <= BIT) * NET[2] + (LOG - NET[2] <= BIT) * (LOG - NET[1])
    return tl.reduce(x, AXIS, _smaller, keep_dims=True)


@kernel
def _step(x, i, BIT: tl.constexpr, NET: tl.constexpr, PAIR: tl.constexpr):
    """Order the neighbours along the axis of one bit: the smaller goes to 0."""
    y = x ^ _both(x, BIT, NET)
    right = along(BIT, NET) == 1
    if PAIR:
        j = i ^ _both(i, BIT, NET)
        swap = ((x > y) | ((x == y) & (i > j))) != right
        x = tl.where(swap, y, x)
        i = tl.where(swap, j, i)
    elif NET[0] - NET[2] <= BIT:
        x = tl.where((x > y) != right, y, x)
    elif x.dtype.primitive_bitwidth <= 32:
        x = tl.where(right, tl.maximum(x, y), tl.minimum(x, y))
    else:
        x = tl.where(tl.where(right, x < y, x > y), y, x)
    return x, i


@kernel
def _better_half(x, i, BIT: tl.constexpr, NET: tl.constexpr, PAIR: tl.constexpr):
    """The smaller of the neighbours along the axis of one bit, which gets size 1."""
    if PAIR:
        x, i = _step(x, i, BIT, NET, PAIR)
        right = along(BIT, NET) == 1
        x = _both(tl.where(right, 0, x), BIT, NET)
        i = _both(tl.where(right, 0, i), BIT, NET)
    else:
        x = _least(x, BIT, NET)
    return x, i


@kernel
def _turn(x, i, BIT: tl.constexpr, NET: tl.constexpr, PAIR: tl.constexpr):
    """Complement the half that is 1 along the axis of one bit."""
    mask = 0 - along(BIT, NET)
    x = x ^ mask.to(x.dtype)
    if PAIR:
        i = i ^ mask.to(i.dtype)
    return x, i


@kernel
def _flat(x, NET: tl.constexpr):
    """The rows in sorted order, 2^KEEP elements each."""
    LOG: tl.constexpr = NET[0]
    KEEP: tl.constexpr = NET[3]
    BEHIND: tl.constexpr = LOG - NET[1] - NET[2]
    LOW: tl.constexpr = (NET[1] > KEEP) * KEEP + (NET[1] <= KEEP) * NET[1]
    REST: tl.constexpr = KEEP - LOW
    MORE: tl.constexpr = (REST < BEHIND) * REST + (REST >= BEHIND) * BEHIND
    h = tl.reshape(x, (x.shape[0], 2**MORE, 2 ** (REST - MORE), 2**LOW))
    return tl.reshape(tl.permute(h, 0, 2, 1, 3), (x.shape[0], 2**KEEP))


@kernel
def sort_network(x, i, NET: tl.constexpr, PAIR: tl.constexpr):
    """The first 2^KEEP elements of each row of a ``rows x 2^LOG`` tile in order; PAIR: else `i` is not looked at."""
    LOG: tl.constexpr = NET[0]
    KEEP: tl.constexpr = NET[3]
    h = tl.reshape(x, [x.shape[0]] + [2] * LOG)
    if PAIR:
        g = tl.reshape(i, [x.shape[0]] + [2] * LOG)
    else:
        g = i
    for k in tl.static_range(1, KEEP + 1):
        if k > 1:
            h, g = _turn(h, g, k - 1, NET, PAIR)
        if k < LOG:
            h, g = _turn(h, g, k, NET, PAIR)
        for j in tl.static_range(k):
            h, g = _step(h, g, k - 1 - j, NET, PAIR)
    for b in tl.static_range(KEEP, LOG):
        h, g = _turn(h, g, b, NET, PAIR)
        h, g = _better_half(h, g, b, NET, PAIR)
        if b + 1 < LOG:
            h, g = _turn(h, g, b + 1, NET, PAIR)
        for j in tl.static_range(KEEP):
            h, g = _step(h, g, KEEP - 1 - j, NET, PAIR)
    h = _flat(h, NET)
    if PAIR:
        g = _flat(g, NET)
    return h, g
