"""Long rows: the kernels of one radix pass of 8 bits, as separate launches because nothing orders programs inside one.

Elements lie in tiles. Each tile is counted; the counts of tiles that precede in the row and of smaller digits give
where each digit of a tile begins; each tile is sorted by digit in registers and written there. Elements are packed with
their index (see `nbxtensor.ops.sort.keys`; PACK = 0: keys and indices in tensors of their own, which share one block of
memory). `places` has room for two states of all rows. A pass in which every digit of a row is the same moves nothing,
unless it is the first, which packs, or the last, which unpacks: `done` counts the moves so far, which says in which
state a row lies.

PASS is ``(FIRST, LAST)``: whether the source is `x`, and whether the results are written; the last digit holds
the sign. `number` counts the digits from the lowest. `last` is n - 1: what
Triton cannot see to be 0 (last + 1 - n) keeps it from letting a thread load several neighbours, whose places in order
would then have to be exchanged before they are stored.
"""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.ops.sort.keys import key_in, order_key, pack, packed_index, restored
from nbxtensor.ops.sort.layout import along_row, row_offset
from nbxtensor.ops.sort.network import sort_network

BINS = 256


@kernel
def _state(places, moves, total, PACK: tl.constexpr):
    """The keys (or packed elements) and indices of the state that so many moves lead to."""
    at = places + ((moves + 1) % 2).to(tl.int64) * total
    if PACK:
        more = at
    else:
        more = at + 2 * total
    return at, more


@kernel
def _elements(
    x, places, moves, row, begin, local, here, n, total, x_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, PASS: tl.constexpr,
):  # fmt: skip
    """Elements of a row at `begin + local`: packed, or keys and indices. FIRST: `x` is where the row lies."""
    if PASS[0]:
        pointers = (x + along_row(begin, x_step, X_FORM)) + along_row(local, x_step, X_FORM)
        key = order_key(tl.load(pointers, mask=here, other=0), KEY)
        if PACK:
            a = pack(key, begin + local, PACK)
            b = a
        else:
            a = key.to(tl.int64)
            b = begin + local
    else:
        keys, more = _state(places, moves, total, PACK)
        a = tl.load((keys + (row * n + begin)) + local, mask=here, other=0)
        b = a
        if not PACK:
            b = tl.load((more + (row * n + begin)) + local, mask=here, other=0)
    return a, b


@kernel
def _digit(a, number, PACK: tl.constexpr, PASS: tl.constexpr):
    digit = ((a >> (PACK // 2 + 8 * number).to(a.dtype)) & 255).to(tl.int32)
    if PASS[1]:
        digit = digit ^ 128
    return digit


@kernel
def _moves(done, row, PASS: tl.constexpr):
    """How often a row was moved before this pass."""
    if PASS[0]:
        moves = tl.zeros((), tl.int32)
    else:
        moves = tl.load(done + row)
    return moves


@kernel
def radix_sort_tile_counts_kernel(
    x, places, starts, done, n, last, total, tiles, number, kept, x_kept, x_step,
    TILE: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, PASS: tl.constexpr,
):  # fmt: skip
    """Where each digit begins once a tile is sorted by digit: the counts of a tile, summed."""
    program = tl.program_id(0).to(tl.int64)
    row = program // tiles
    begin = (program - row * tiles) * TILE + (last + 1 - n)
    local = tl.arange(0, TILE)
    here = local <= tl.minimum(last - begin, TILE).to(tl.int32)
    x += row_offset(row, kept, x_kept, X_FORM)
    moves = _moves(done, row, PASS)
    a, _ = _elements(x, places, moves, row, begin, local, here, n, total, x_step, KEY, PACK, X_FORM, PASS)
    counts = tl.histogram(_digit(a, number, PACK, PASS), 256, mask=here)
    tl.store(starts + program * 256 + tl.arange(0, 256), tl.cumsum(counts, 0) - counts)


@kernel
def _counts(starts, row, t, end, n, tiles, TILE: tl.constexpr):
    """Beginnings and counts of the digits in tiles `t` of a row; 0 from `end`."""
    d = tl.arange(0, 256)[None, :]
    here = (t < end)[:, None]
    pointers = starts + ((row * tiles + t)[:, None] * 256 + d)
    begin = tl.load(pointers, mask=here, other=0)
    size = tl.minimum(n - t * TILE, TILE).to(tl.int32)
    following = tl.load(pointers + 1, mask=here & (d < 255), other=0)
    following = tl.where(d < 255, following, size[:, None])
    return begin, tl.where(here, following - begin, 0)


@kernel
def radix_sort_tile_prefix_kernel(
    starts, totals, n, tiles, chunks, TILE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """In a chunk of CHUNK tiles: what lies before each digit of a tile, less its beginning in the tile; and totals."""
    program = tl.program_id(0).to(tl.int64)
    row = program // chunks
    first = (program - row * chunks) * CHUNK
    end = tl.minimum(first + CHUNK, tiles)
    d = tl.arange(0, 256)[None, :]
    before = tl.zeros((256,), tl.int32)
    for at in range(0, (end - first).to(tl.int32), BLOCK):
        t = first + at + tl.arange(0, BLOCK)
        begin, count = _counts(starts, row, t, end, n, tiles, TILE)
        earlier = tl.cumsum(count, 0) - count + before[None, :]
        tl.store(starts + ((row * tiles + t)[:, None] * 256 + d), earlier - begin, mask=(t < end)[:, None])
        before += tl.sum(count, 0)
    tl.store(totals + program * 256 + tl.arange(0, 256), before)


@kernel
def _chunk_counts(starts, totals, row, c, n, chunks, TILE: tl.constexpr, DIRECT: tl.constexpr):
    """Beginnings and counts of chunks `c`; DIRECT: a chunk is one tile."""
    if DIRECT:
        begin, count = _counts(starts, row, c, chunks, n, chunks, TILE)
    else:
        pointers = totals + ((row * chunks + c)[:, None] * 256 + tl.arange(0, 256)[None, :])
        count = tl.load(pointers, mask=(c < chunks)[:, None], other=0)
        begin = tl.zeros_like(count)
    return begin, count


@kernel
def radix_sort_histogram_kernel(
    starts, totals, bases, done, done_after, n, chunks,
    TILE: tl.constexpr, BLOCK: tl.constexpr, DIRECT: tl.constexpr, PASS: tl.constexpr,
):  # fmt: skip
    """Of each row: where each digit of each chunk goes, and whether the pass moves anything."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, 256)
    sums = tl.zeros((256,), tl.int64)
    for at in range(0, chunks.to(tl.int32), BLOCK):
        c = (at + tl.arange(0, BLOCK)).to(tl.int64)
        _, count = _chunk_counts(starts, totals, row, c, n, chunks, TILE, DIRECT)
        sums += tl.sum(count, 0).to(tl.int64)
    before = tl.cumsum(sums, 0) - sums
    moves = _moves(done, row, PASS)
    if PASS[0]:
        moves += 1
    else:
        moves += (tl.max(sums, 0) != n).to(tl.int32)
    tl.store(done_after + row, moves)
    for at in range(0, chunks.to(tl.int32), BLOCK):
        c = (at + tl.arange(0, BLOCK)).to(tl.int64)
        begin, count = _chunk_counts(starts, totals, row, c, n, chunks, TILE, DIRECT)
        base = tl.cumsum(count, 0) - count - begin + before[None, :]
        pointers = bases + ((row * chunks + c)[:, None] * 256 + d[None, :])
        tl.store(pointers, base.to(bases.dtype.element_ty), mask=(c < chunks)[:, None])
        before += tl.sum(count, 0).to(tl.int64)


@kernel
def radix_sort_scatter_kernel(
    x, places, starts, bases, done, done_after, values, indices,
    n, last, total, limit, tiles, chunks, number, kept, x_kept, v_kept, i_kept, x_step, v_step, i_step,
    NET: tl.constexpr, CHUNK: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr, PASS: tl.constexpr,
):  # fmt: skip
    """Sort a tile by digit and write each element to its place."""
    TILE: tl.constexpr = 2 ** NET[0]
    program = tl.program_id(0).to(tl.int64)
    row = program // tiles
    tile = program - row * tiles
    begin = tile * TILE + (last + 1 - n)
    x += row_offset(row, kept, x_kept, X_FORM)
    moves = _moves(done, row, PASS)
    if PASS[1]:
        after = moves + 1
    else:
        after = tl.load(done_after + row)
    if after > moves:
        local = tl.arange(0, TILE)
        here = local <= tl.minimum(last - begin, TILE).to(tl.int32)
        a, b = _elements(x, places, moves, row, begin, local, here, n, total, x_step, KEY, PACK, X_FORM, PASS)
        digit = tl.where(here, _digit(a, number, PACK, PASS), 256)
        order, _ = sort_network(tl.reshape((digit << NET[0]) | local, (1, TILE)), 0, NET, False)
        order = tl.reshape(order, (TILE,))
        # Read again, now in order: cheaper than to keep the elements and exchange them between threads.
        source = (order & (TILE - 1)).to(tl.int64)
        digit = (order >> NET[0]).to(tl.int64)
        a, b = _elements(x, places, moves, row, begin, source, here, n, total, x_step, KEY, PACK, X_FORM, PASS)
        at = tl.load((bases + (row * chunks + tile // CHUNK) * 256) + digit, mask=here, other=0)
        if CHUNK > 1:
            at += tl.load((starts + program * 256) + digit, mask=here, other=0)
        at += local
        if PASS[1]:
            key = key_in(a, KEY, PACK)
            if PACK:
                index = packed_index(a, PACK).to(tl.int64)
            else:
                index = b
            there = here & (at < limit)
            if WANTED[0]:
                value = restored(key, x + along_row(index, x_step, X_FORM), there, KEY)
                pointers = (values + row_offset(row, kept, v_kept, V_FORM)) + along_row(at, v_step, V_FORM)
                tl.store(pointers, value, mask=there)
            if WANTED[1]:
                pointers = (indices + row_offset(row, kept, i_kept, I_FORM)) + along_row(at, i_step, I_FORM)
                tl.store(pointers, index, mask=there)
        else:
            keys, more = _state(places, moves + 1, total, PACK)
            tl.store((keys + row * n) + at, a, mask=here)
            if not PACK:
                tl.store((more + row * n) + at, b, mask=here)
