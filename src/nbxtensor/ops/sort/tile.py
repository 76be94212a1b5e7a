"""Rows in registers: a program sorts a block of short rows with a network, or selects the best of a piece of a row.

Elements are packed with their index where 64 (16-bit elements: 32) bits hold both; else keys and indices go in pairs.
"""

from nbxtensor.base.dtypes import int64
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.tuned import tuned
from nbxtensor.ops.sort.keys import RAW, key_in, order_key, pack, packed_index, restored, worst_place
from nbxtensor.ops.sort.layout import Layout, along_row, key_of_launch, packing, place_dtype, row_offset
from nbxtensor.ops.sort.network import sort_network
from nbxtensor.ops.sort.settings import Tile, tile_candidates


@kernel
def tile_sort_kernel(
    x, places, values, indices, n, limit, count, pieces, kept, x_kept, v_kept, i_kept, x_step, v_step, i_step,
    ROWS: tl.constexpr, NET: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr, MASKED: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
    PIECES: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Sort (or select the first 2^KEEP of) ROWS rows or, with PIECES, ROWS pieces of rows.

    FIRST: the source is `x`; else contiguous rows of `n` packed elements in `places` (PACK = 0: keys in `places`, then
    indices behind them). LAST: values and indices are written; else contiguous packed elements go to `values` (PACK =
    0: keys there and indices in `indices`). `x` is the tensor itself in any case, for elements that keys do not tell.
    """
    N: tl.constexpr = 2 ** NET[0]
    KEPT: tl.constexpr = 2 ** NET[3]
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    local = tl.arange(0, N)[None, :]
    if PIECES:
        row = r // pieces
        begin = ((r - row * pieces) * N)[:, None]
        here = (row < count)[:, None] & (local < tl.minimum(n - begin, N).to(tl.int32))
        i = begin + local
    else:
        row = r
        begin = tl.zeros((1, 1), tl.int64)
        here = (row < count)[:, None] & (local < n.to(tl.int32))
        i = local
    across = row_offset(row, kept, x_kept, X_FORM)[:, None]
    if FIRST:
        pointers = (x + across + along_row(begin, x_step, X_FORM)) + along_row(local, x_step, X_FORM)
        if MASKED:
            key = order_key(tl.load(pointers, mask=here, other=0), KEY)
        else:
            key = order_key(tl.load(pointers), KEY)
        if PACK:
            a = pack(key, i, PACK)
            b = 0
        else:
            a = key.to(tl.int64)
            b = tl.broadcast_to(i.to(tl.int64), (ROWS, N))
    else:
        pointers = (places + (row[:, None] * n + begin)) + local
        a = tl.load(pointers, mask=here, other=0)
        if PACK:
            b = 0
        else:
            b = tl.load(pointers + count * n, mask=here, other=0)
    if MASKED or not FIRST:
        a = tl.where(here, a, worst_place(PACK))
        if not PACK:
            b = tl.where(here, b, worst_place(PACK))
    a, b = sort_network(a, b, NET, PACK == 0)
    j = tl.arange(0, KEPT)[None, :]
    if LAST:
        key = key_in(a, KEY, PACK)
        if PACK:
            index = packed_index(a, PACK).to(tl.int64)
        else:
            index = b
        there = (row < count)[:, None] & (j < limit)
        if WANTED[0]:
            value = restored(key, x + across + along_row(index, x_step, X_FORM), there, KEY)
            pointers = values + row_offset(row, kept, v_kept, V_FORM)[:, None] + along_row(j, v_step, V_FORM)
            if MASKED or KEPT < N:
                tl.store(pointers, value, mask=there)
            else:
                tl.store(pointers, value)
        if WANTED[1]:
            pointers = indices + row_offset(row, kept, i_kept, I_FORM)[:, None] + along_row(j, i_step, I_FORM)
            if MASKED or KEPT < N:
                tl.store(pointers, index, mask=there)
            else:
                tl.store(pointers, index)
    else:
        there = (row < count)[:, None] & (j < KEPT)
        tl.store(values + (r[:, None] * KEPT + j), a, mask=there)
        if not PACK:
            tl.store(indices + (r[:, None] * KEPT + j), b, mask=there)


def tile_plan(
    name: str,
    device: Device,
    layout: Layout,
    log: int,
    keep: int,
    *,
    stage: tuple[bool, bool] = (True, True),
    length: int | None = None,
    setting: Tile | None = None,
    quick: bool = False,
) -> tuple[Plan, int]:
    """The launch that sorts rows of tiles of 2^log elements and keeps 2^keep of each; and the pieces of a row.

    `stage`: whether it reads the tensor, and whether it writes the results. `length`: elements of a row that it reads.
    """
    n = layout.length if length is None else length
    if setting is None:
        found = tile_candidates(device.profile, layout, log, stage[0], quick, name)
        key = key_of_launch("tile", layout, device, f"tiles of {log}", f"stage {stage[0]:d}{stage[1]:d}", length=n)
        return tuned(
            key,
            found,
            lambda chosen: tile_plan(
                name, device, layout, log, keep, stage=stage, length=length, setting=chosen, quick=quick
            ),
        )
    pieces = -(-n >> log)
    pack = packing(layout)
    raw, place = RAW[layout.key[0]], place_dtype(pack)
    spread = (device.profile.warp_size * setting.num_warps).bit_length() - 1
    masked = n != pieces << log or layout.count * pieces % setting.rows != 0
    plan = Plan(
        name,
        tile_sort_kernel,
        device,
        (-(-layout.count * pieces // setting.rows), 1, 1),
        {
            "x": Pointer(raw),
            "places": Pointer(place),
            "values": Pointer(raw if stage[1] else place),
            "indices": Pointer(int64),
            "n": n,
            "limit": layout.limit,
            "count": layout.count,
            "pieces": pieces,
            "kept": layout.kept,
            "x_kept": layout.kept_strides[0],
            "v_kept": layout.kept_strides[1],
            "i_kept": layout.kept_strides[2],
            "x_step": layout.steps[0],
            "v_step": layout.steps[1],
            "i_step": layout.steps[2],
        },
        {
            "ROWS": setting.rows,
            "NET": (log, setting.low, min(spread, log - setting.low), keep),
            "KEY": layout.key,
            "PACK": pack,
            "MASKED": masked,
            "X_FORM": layout.forms[0],
            "V_FORM": layout.forms[1],
            "I_FORM": layout.forms[2],
            "WANTED": layout.wanted,
            "PIECES": pieces > 1,
            "FIRST": stage[0],
            "LAST": stage[1],
        },
        Options(num_warps=setting.num_warps),
        layout.count * n,
    )
    return plan, pieces
