"""Selecting the first few elements (in order) of rows where programs run on many threads.

Short rows are one tile: `tile_sort_kernel` keeps the best. Of a long row, elements are put into groups and the best of
each group is found, which costs little more than reading. The wanted elements lie in the groups with the best bests:
those are selected (in pieces of a tile, until one piece is left), and then the elements among those groups.
"""

from nbxtensor.base.dtypes import int64
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.rows import power_of_two
from nbxtensor.ops.sort.keys import RAW, key_in, order_key, pack, packed_index, restored, worst_place
from nbxtensor.ops.sort.layout import Layout, Run, along_row, row_offset
from nbxtensor.ops.sort.network import sort_network
from nbxtensor.ops.sort.tile import log_of, packing, place_dtype, tile_plan

PIECE_LOG = 12
"""Elements (log2) of a piece of the tensor that one program selects from; more are split into groups first."""
WINNER_LOG = 10
"""The same among bests of groups, of which there are few."""
GROUP = 32
STEP = 8


@kernel
def group_best_kernel(
    x, places, indices, n, pieces, kept, x_kept, x_step,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr,
    X_FORM: tl.constexpr,
):  # fmt: skip
    """The best of COLUMNS groups in a piece of a row; a group is every COLUMNS-th of SIZE * COLUMNS elements."""
    program = tl.program_id(0).to(tl.int64)
    row = program // pieces
    begin = (program - row * pieces) * (SIZE * COLUMNS)
    x += row_offset(row, kept, x_kept, X_FORM)
    column = tl.arange(0, COLUMNS)
    local = (tl.arange(0, STEPS) * COLUMNS)[:, None] + column[None, :]
    best = worst_place(PACK) + tl.zeros((COLUMNS,), tl.int64).to(places.dtype.element_ty)
    where = worst_place(0) + tl.zeros((COLUMNS,), tl.int64)
    for at in range(begin, tl.minimum(begin + SIZE * COLUMNS, n), STEPS * COLUMNS):
        here = local < tl.minimum(n - at, STEPS * COLUMNS).to(tl.int32)
        pointers = (x + along_row(at, x_step, X_FORM)) + along_row(local, x_step, X_FORM)
        key = order_key(tl.load(pointers, mask=here, other=0), KEY)
        if PACK:
            best = tl.minimum(best, tl.min(tl.where(here, pack(key, at + local, PACK), worst_place(PACK)), 0))
        else:
            wide = tl.where(here, key.to(tl.int64), worst_place(PACK))
            least = tl.min(wide, 0)
            first = tl.min(tl.where(here & (wide == least[None, :]), at + local, worst_place(0)), 0)
            better = least < best
            best = tl.where(better, least, best)
            where = tl.where(better, first, where)
    tl.store((places + program * COLUMNS) + column, best)
    if not PACK:
        tl.store((indices + program * COLUMNS) + column, where)


@kernel
def group_select_kernel(
    x, winners, values, indices, n, limit, count, kept, x_kept, v_kept, i_kept, x_step, v_step, i_step,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, NET: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    """Select the first `limit` of the elements in the groups of a row's 2^KEEP `winners` (PACK = 0: then indices)."""
    N: tl.constexpr = 2 ** NET[0]
    BEST: tl.constexpr = 2 ** NET[3]
    row = tl.program_id(0).to(tl.int64)
    x += row_offset(row, kept, x_kept, X_FORM)
    local = tl.arange(0, N)[None, :]
    pointers = (winners + row * BEST) + local % BEST
    if PACK:
        place = tl.load(pointers)
        index = packed_index(place, PACK).to(tl.int64)
        real = place != worst_place(PACK)
    else:
        index = tl.load(pointers + count * BEST)
        real = index != worst_place(0)
    index = index // (SIZE * COLUMNS) * (SIZE * COLUMNS) + index % COLUMNS + local // BEST * COLUMNS
    here = real & (index < n)
    key = order_key(tl.load(x + along_row(index, x_step, X_FORM), mask=here, other=0), KEY)
    if PACK:
        a = tl.where(here, pack(key, index, PACK), worst_place(PACK))
        b = 0
    else:
        a = tl.where(here, key.to(tl.int64), worst_place(PACK))
        b = tl.where(here, index, worst_place(0))
    a, b = sort_network(a, b, NET, PACK == 0)
    j = tl.arange(0, BEST)[None, :]
    there = j < limit
    key = key_in(a, KEY, PACK)
    if PACK:
        index = packed_index(a, PACK).to(tl.int64)
    else:
        index = b
    if WANTED[0]:
        value = restored(key, x + along_row(index, x_step, X_FORM), there, KEY)
        tl.store((values + row_offset(row, kept, v_kept, V_FORM)) + along_row(j, v_step, V_FORM), value, mask=there)
    if WANTED[1]:
        tl.store((indices + row_offset(row, kept, i_kept, I_FORM)) + along_row(j, i_step, I_FORM), index, mask=there)


def select_pieces(name: str, device: Device, layout: Layout, piece_log: int = PIECE_LOG) -> Run:
    """Select the best of each piece of the rows, then of those, until one piece is left."""
    stages, sizes, _ = _stages(name, device, layout, layout.length, piece_log, (True, True), False)
    parts = 1 if packing(layout) else 2

    def run(x: int, values: int, indices: int) -> None:
        source = None
        for plan, size in zip(stages[:-1], sizes[:-1], strict=True):
            found = device.allocate(parts * size)
            plan.run(x, x if source is None else source.ptr, found.ptr, found.ptr + (parts - 1) * size)
            source = found
        stages[-1].run(x, x if source is None else source.ptr, values, indices)

    return run


def _stages(
    name: str, device: Device, layout: Layout, length: int, piece_log: int, ends: tuple[bool, bool], quick: bool
) -> tuple[list[Plan], list[int], int]:
    """Launches that select among rows of `length`, the bytes (without indices) that they leave, and the wanted (log2).

    `ends`: whether the first reads the tensor, and whether the last writes the results.
    """
    keep = log_of(layout.limit)
    plans: list[Plan] = []
    sizes: list[int] = []
    while True:
        log = max(keep, min(piece_log, log_of(length)))
        done = length <= 1 << log
        stage = (ends[0] and not plans, ends[1] and done)
        plan, pieces = tile_plan(name, device, layout, log, keep, stage=stage, length=length, quick=quick)
        plans.append(plan)
        length = pieces << keep
        sizes.append(layout.count * length * place_dtype(packing(layout)).itemsize)
        if done:
            return plans, sizes, keep


def select_groups(
    name: str, device: Device, layout: Layout, piece_log: int = WINNER_LOG, size: int = GROUP, warps: int | None = None
) -> Run:
    """Select among the best of groups of (at most) `size` elements, then among the elements of the best groups."""
    pack, n, count = packing(layout), layout.length, layout.count
    raw, place = RAW[layout.key[0]], place_dtype(pack)
    keep = log_of(layout.limit)
    size = max(2, min(size, 1 << PIECE_LOG - keep))
    threads = device.profile.warp_size
    if warps is None:
        warps = 4 if count * n > 1 << 22 and threads > 1 else 1
    columns = 4 * threads * warps
    pieces = -(-n // (size * columns))
    found = pieces * columns
    best = Plan(
        name, group_best_kernel, device, (count * pieces, 1, 1),
        {
            "x": Pointer(raw), "places": Pointer(place), "indices": Pointer(int64), "n": n, "pieces": pieces,
            "kept": layout.kept, "x_kept": layout.kept_strides[0], "x_step": layout.steps[0],
        },
        {
            "SIZE": size, "COLUMNS": columns, "STEPS": min(STEP, size), "KEY": layout.key, "PACK": pack,
            "X_FORM": layout.forms[0],
        },
        Options(num_warps=warps), count * n,
    )  # fmt: skip
    stages, sizes, _ = _stages(name, device, layout, found, piece_log, (False, False), True)
    log = keep + log_of(size)
    last_warps = max(1, (1 << log) // (8 * threads)) if threads > 1 else 1
    spread = (threads * last_warps).bit_length() - 1
    last = Plan(
        name, group_select_kernel, device, (count, 1, 1),
        {
            "x": Pointer(raw), "winners": Pointer(place), "values": Pointer(raw), "indices": Pointer(int64), "n": n,
            "limit": layout.limit, "count": count, "kept": layout.kept, "x_kept": layout.kept_strides[0],
            "v_kept": layout.kept_strides[1], "i_kept": layout.kept_strides[2], "x_step": layout.steps[0],
            "v_step": layout.steps[1], "i_step": layout.steps[2],
        },
        {
            "SIZE": size, "COLUMNS": columns, "NET": (log, 0, min(spread, log), keep), "KEY": layout.key,
            "PACK": pack, "X_FORM": layout.forms[0], "V_FORM": layout.forms[1], "I_FORM": layout.forms[2],
            "WANTED": layout.wanted,
        },
        Options(num_warps=last_warps), count << log,
    )  # fmt: skip
    sizes = [count * found * place.itemsize, *sizes]
    parts = 1 if pack else 2

    def run(x: int, values: int, indices: int) -> None:
        source = device.allocate(parts * sizes[0])
        best.run(x, source.ptr, source.ptr + (parts - 1) * sizes[0])
        for plan, room in zip(stages, sizes[1:], strict=True):
            target = device.allocate(parts * room)
            plan.run(x, source.ptr, target.ptr, target.ptr + (parts - 1) * room)
            source = target
        last.run(x, source.ptr, values, indices)

    return run


def select(name: str, device: Device, layout: Layout) -> Run:
    """Select the first `limit` elements of each row."""
    if layout.length > 1 << PIECE_LOG and power_of_two(layout.limit) * GROUP * 4 <= layout.length:
        return select_groups(name, device, layout)
    return select_pieces(name, device, layout)
