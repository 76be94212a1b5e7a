"""The kernels of matmul. Both walk k in ascending order inside chunks, and add the chunks in order."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.kernel.math import cast
from nbxtensor.kernel.rows import offset_of


@kernel
def _dot_step(
    a, b, acc, at, k, rows, columns, m, n, a_m, a_k, b_k, b_n,
    BK: tl.constexpr, A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    M_TAIL: tl.constexpr, N_TAIL: tl.constexpr, K_TAIL: tl.constexpr,
):  # fmt: skip
    """Continue the chains of a tile by the BK steps from `at`; steps beyond `k` add 0 * 0."""
    i = tl.arange(0, BK)
    wide = i.to(tl.int64)
    if A_UNIT:
        a_pointers = (a + at) + (rows * a_m)[:, None] + i[None, :]
    else:
        a_pointers = (a + at * a_k) + (rows * a_m)[:, None] + (wide * a_k)[None, :]
    b_rows = (b + at * b_k) + (wide * b_k)[:, None]
    if B_UNIT:
        b_pointers = b_rows + columns[None, :]
    else:
        b_pointers = b_rows + (columns * b_n)[None, :]
    inside = at + i < k
    if M_TAIL and K_TAIL:
        x = tl.load(a_pointers, mask=(rows < m)[:, None] & inside[None, :], other=0.0)
    elif M_TAIL:
        x = tl.load(a_pointers, mask=(rows < m)[:, None], other=0.0)
    elif K_TAIL:
        x = tl.load(a_pointers, mask=inside[None, :], other=0.0)
    else:
        x = tl.load(a_pointers)
    if N_TAIL and K_TAIL:
        y = tl.load(b_pointers, mask=inside[:, None] & (columns < n)[None, :], other=0.0)
    elif N_TAIL:
        y = tl.load(b_pointers, mask=(columns < n)[None, :], other=0.0)
    elif K_TAIL:
        y = tl.load(b_pointers, mask=inside[:, None], other=0.0)
    else:
        y = tl.load(b_pointers)
    return tl.dot(x.to(tl.float32), y.to(tl.float32), acc, input_precision="ieee")


@kernel
def matmul_kernel(
    a, b, out, m, n, k, first_row, first_column, tiles_n, tiles, a_m, a_k, b_k, b_n, out_m,
    batch, a_batch, b_batch, out_batch,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHUNK_SIZE: tl.constexpr,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, M_TAIL: tl.constexpr, N_TAIL: tl.constexpr, K_TAIL: tl.constexpr,
    CHUNKS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One tile of one product of the batch. CHUNKS: K holds whole chunks; REST: and steps beyond them."""
    program = tl.program_id(0).to(tl.int64)
    tile = program % tiles
    index = program // tiles
    a += offset_of(index, batch, a_batch)
    b += offset_of(index, batch, b_batch)
    out += offset_of(index, batch, out_batch)
    rows = first_row + tile // tiles_n * BM + tl.arange(0, BM)
    columns = first_column + tile % tiles_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    begin = k * 0
    if CHUNKS:
        for _ in range(k // CHUNK_SIZE):
            acc = tl.zeros((BM, BN), tl.float32)
            for step in range(0, CHUNK_SIZE, BK):
                acc = _dot_step(
                    a, b, acc, begin + step, k, rows, columns, m, n, a_m, a_k, b_k, b_n,
                    BK, A_UNIT, B_UNIT, M_TAIL, N_TAIL, False,
                )  # fmt: skip
            total += acc
            begin += CHUNK_SIZE
    if REST:
        acc = tl.zeros((BM, BN), tl.float32)
        whole = begin + (k - begin) // BK * BK
        for at in range(begin, whole, BK):
            acc = _dot_step(
                a, b, acc, at, k, rows, columns, m, n, a_m, a_k, b_k, b_n,
                BK, A_UNIT, B_UNIT, M_TAIL, N_TAIL, False,
            )  # fmt: skip
        if K_TAIL:
            acc = _dot_step(
                a, b, acc, whole, k, rows, columns, m, n, a_m, a_k, b_k, b_n,
                BK, A_UNIT, B_UNIT, M_TAIL, N_TAIL, True,
            )  # fmt: skip
        total += acc
    pointers = out + (rows * out_m)[:, None] + columns[None, :]
    value = cast(total, out.dtype.element_ty)
    if M_TAIL and N_TAIL:
        tl.store(pointers, value, mask=(rows < m)[:, None] & (columns < n)[None, :])
    elif M_TAIL:
        tl.store(pointers, value, mask=(rows < m)[:, None])
    elif N_TAIL:
        tl.store(pointers, value, mask=(columns < n)[None, :])
    else:
        tl.store(pointers, value)


@kernel
def _outer_step(
    a, b, acc, at, rows, columns, m, n, a_m, a_k, b_k, b_n,
    TYPE: tl.constexpr, WHOLE: tl.constexpr, B_UNIT: tl.constexpr,
):  # fmt: skip
    """Continue the chains of a tile by one step."""
    if B_UNIT:
        b_pointers = (b + at * b_k) + columns
    else:
        b_pointers = b + (columns * b_n + at * b_k)
    if WHOLE:
        x = tl.load(a + (rows * a_m + at * a_k))
        y = tl.load(b_pointers)
    else:
        x = tl.load(a + (rows * a_m + at * a_k), mask=rows < m, other=0)
        y = tl.load(b_pointers, mask=columns < n, other=0)
    x = tl.broadcast_to(cast(x, TYPE)[:, None], acc.shape)
    y = tl.broadcast_to(cast(y, TYPE)[None, :], acc.shape)
    if TYPE.is_floating():
        acc = tl.fma(x, y, acc)
    else:
        acc = acc + x * y
    return acc


@kernel
def matmul_outer_kernel(
    a, b, out, m, n, k, first_row, first_column, tiles_n, tiles, a_m, a_k, b_k, b_n, out_m,
    batch, a_batch, b_batch, out_batch,
    TYPE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CHUNK_SIZE: tl.constexpr, UNROLL: tl.constexpr,
    WHOLE: tl.constexpr, B_UNIT: tl.constexpr,
):  # fmt: skip
    """One tile of a product by outer products, one for each k, in the order of the chains: for every dtype, and for few
    rows, where the operands are read once only."""
    program = tl.program_id(0).to(tl.int64)
    tile = program % tiles
    index = program // tiles
    a += offset_of(index, batch, a_batch)
    b += offset_of(index, batch, b_batch)
    rows = first_row + tile // tiles_n * BM + tl.arange(0, BM)
    columns = first_column + tile % tiles_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), TYPE)
    for begin in range(0, k, CHUNK_SIZE):
        end = tl.minimum(begin + CHUNK_SIZE, k)
        acc = tl.zeros((BM, BN), TYPE)
        whole = begin + (end - begin) // UNROLL * UNROLL
        for at in range(begin, whole, UNROLL):
            for j in tl.static_range(UNROLL):
                acc = _outer_step(
                    a, b, acc, at + j, rows, columns, m, n, a_m, a_k, b_k, b_n, TYPE, WHOLE, B_UNIT
                )  # fmt: skip
        for at in range(whole, end):
            acc = _outer_step(a, b, acc, at, rows, columns, m, n, a_m, a_k, b_k, b_n, TYPE, WHOLE, B_UNIT)
        total += acc
    pointers = out + offset_of(index, batch, out_batch) + (rows * out_m)[:, None] + columns[None, :]
    value = cast(total, out.dtype.element_ty)
    if WHOLE:
        tl.store(pointers, value)
    else:
        tl.store(pointers, value, mask=(rows < m)[:, None] & (columns < n)[None, :])
