"""The kernels that select among the best of groups; the plan is that of `nbxtensor.ops.sort.selection`."""

from nbxtensor.compiler.source import kernel, tl
from nbxtensor.ops.sort.keys import key_in, order_key, pack, packed_index, restored, worst_place
from nbxtensor.ops.sort.layout import along_row, row_offset
from nbxtensor.ops.sort.network import sort_network


@kernel
def group_best_kernel(
    x, places, values, indices, n, pieces, kept, x_kept, x_step,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr,
    X_FORM: tl.constexpr,
):  # fmt: skip
    """The best of COLUMNS groups in a piece of a row; a group is every COLUMNS-th of SIZE * COLUMNS elements.

    `places` is not looked at.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // pieces
    begin = (program - row * pieces) * (SIZE * COLUMNS)
    x += row_offset(row, kept, x_kept, X_FORM)
    column = tl.arange(0, COLUMNS)
    local = (tl.arange(0, STEPS) * COLUMNS)[:, None] + column[None, :]
    best = worst_place(PACK) + tl.zeros((COLUMNS,), tl.int64).to(values.dtype.element_ty)
    where = worst_place(0) + tl.zeros((COLUMNS,), tl.int64)
    for done in range(0, tl.minimum(SIZE * COLUMNS, n - begin).to(tl.int32), STEPS * COLUMNS):
        at = begin + done
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
    tl.store((values + program * COLUMNS) + column, best)
    if not PACK:
        tl.store((indices + program * COLUMNS) + column, where)


@kernel
def _of_groups(
    x, winners, row, local, n, count, x_step,
    GROUPS: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr,
):  # fmt: skip
    """Elements `local` among those of a row's best groups: packed, or keys and indices; none where a group is shorter.

    GROUPS is ``(SIZE, COLUMNS, BEST)``: the first BEST winners are first, then what follows each in its group.
    """
    pointers = (winners + row * GROUPS[2]) + local % GROUPS[2]
    if PACK:
        place = tl.load(pointers)
        index = packed_index(place, PACK).to(tl.int64)
        real = place != worst_place(PACK)
    else:
        index = tl.load(pointers + count * GROUPS[2])
        real = index != worst_place(0)
    piece = index // (GROUPS[0] * GROUPS[1])
    index = piece * (GROUPS[0] * GROUPS[1]) + index % GROUPS[1] + local // GROUPS[2] * GROUPS[1]
    here = real & (index < n)
    key = order_key(tl.load(x + along_row(index, x_step, X_FORM), mask=here, other=0), KEY)
    if PACK:
        a = tl.where(here, pack(key, index, PACK), worst_place(PACK))
        b = a
    else:
        a = tl.where(here, key.to(tl.int64), worst_place(PACK))
        b = tl.where(here, index, worst_place(0))
    return a, b


@kernel
def _write(
    x, values, indices, a, b, row, at, there, kept, v_kept, i_kept, x_step, v_step, i_step,
    KEY: tl.constexpr, PACK: tl.constexpr, X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr,
    WANTED: tl.constexpr,
):  # fmt: skip
    """Write elements to positions `at` of a row; `x` is where the row begins."""
    key = key_in(a, KEY, PACK)
    if PACK:
        index = packed_index(a, PACK).to(tl.int64)
    else:
        index = b
    if WANTED[0]:
        value = restored(key, x + along_row(index, x_step, X_FORM), there, KEY)
        tl.store((values + row_offset(row, kept, v_kept, V_FORM)) + along_row(at, v_step, V_FORM), value, mask=there)
    if WANTED[1]:
        tl.store((indices + row_offset(row, kept, i_kept, I_FORM)) + along_row(at, i_step, I_FORM), index, mask=there)


@kernel
def group_select_kernel(
    x, places, values, indices, n, limit, count, kept, x_kept, v_kept, i_kept, x_step, v_step, i_step,
    GROUPS: tl.constexpr, NET: tl.constexpr, KEY: tl.constexpr, PACK: tl.constexpr,
    X_FORM: tl.constexpr, V_FORM: tl.constexpr, I_FORM: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    """Select the first `limit` of the elements in the groups of a row's winners, which lie in `places`."""
    row = tl.program_id(0).to(tl.int64)
    x += row_offset(row, kept, x_kept, X_FORM)
    local = tl.arange(0, 2 ** NET[0])[None, :]
    a, b = _of_groups(x, places, row, local, n, count, x_step, GROUPS, KEY, PACK, X_FORM)
    a, b = sort_network(a, b, NET, PACK == 0)
    at = tl.arange(0, GROUPS[2])[None, :]
    _write(
        x, values, indices, a, b, row, at, at < limit, kept, v_kept, i_kept, x_step, v_step, i_step,
        KEY, PACK, X_FORM, V_FORM, I_FORM, WANTED,
    )  # fmt: skip
