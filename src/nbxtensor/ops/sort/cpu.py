"""The launches of a sort where programs are plain code."""

from nbxtensor.base.dtypes import int64
from nbxtensor.base.knobs import num_threads
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.tuned import tuned
from nbxtensor.ops.sort.cpu_kernels import row_select_kernel, row_sort_kernel
from nbxtensor.ops.sort.cpu_parts import check_one_thread, sort_in_parts
from nbxtensor.ops.sort.keys import RAW
from nbxtensor.ops.sort.layout import Layout, Run, key_of_launch, packing, place_dtype
from nbxtensor.ops.sort.settings import row_candidates

WORKERS = 16
VECTOR = 64
SPARE = 512
MOST_INSERTED = 24
LONG = 1 << 16
"""Elements of a row that is worth several threads."""


def sort_rows(name: str, device: Device, layout: Layout, digits: tuple[int, int] | None = None) -> Run:
    """Sort the rows, each in one program; one long row in as many parts as there are threads."""
    parts = min(num_threads.get(), WORKERS)
    if digits is None:
        apart = parts > 1 and layout.count == 1 and layout.length >= LONG
        key = key_of_launch("parts" if apart else "rows", layout, device)
        found = row_candidates(layout, layout.length)
        return tuned(key, found, lambda chosen: sort_rows(name, device, layout, chosen))
    if parts > 1 and layout.count == 1 and layout.length >= LONG:
        return sort_in_parts(name, device, layout, digits, parts)
    return _launch(name, device, layout, layout.length, digits, None)


def select_rows(
    name: str, device: Device, layout: Layout, spare: int = SPARE, vector: int = VECTOR, insert: bool | None = None
) -> Run:
    """Select the first `limit` of the rows, each in one program.

    `insert`: put each candidate to its place at once. Else `spare` is how many more than twice the limit are collected.
    """
    insert = layout.limit <= MOST_INSERTED if insert is None else insert
    room = layout.limit + 1 if insert else 2 * layout.limit + spare
    key = key_of_launch("select", layout, device, "insert" if insert else "collect", f"vector {vector}")
    found = row_candidates(layout, room)
    return tuned(key, found, lambda digits: _launch(name, device, layout, room, digits, {"INSERT": insert}, vector))


def _launch(
    name: str, device: Device, layout: Layout, room: int, digits: tuple[int, int], select: dict[str, Constant] | None,
    vector: int = VECTOR,
) -> Run:  # fmt: skip
    """The launch, with room for `room` elements (twice) in each program; `select`: constants of a selection."""
    check_one_thread(name, device)
    pack = packing(layout)
    raw, place = RAW[layout.key[0]], place_dtype(pack)
    workers = min(layout.count, WORKERS)
    more: dict[str, Argument] = {"room": room} if select else {}
    arguments: dict[str, Argument] = {
        "x": Pointer(raw), "places": Pointer(place), "counters": Pointer(int64), "values": Pointer(raw),
        "indices": Pointer(int64), "n": layout.length, **more, "limit": layout.limit, "count": layout.count,
        "workers": workers, "kept": layout.kept, "x_kept": layout.kept_strides[0], "v_kept": layout.kept_strides[1],
        "i_kept": layout.kept_strides[2], "x_step": layout.steps[0], "v_step": layout.steps[1],
        "i_step": layout.steps[2],
    }  # fmt: skip
    constants: dict[str, Constant] = {
        "KEY": layout.key, "PACK": pack, "DIGITS": digits, "VECTOR": vector, "X_FORM": layout.forms[0],
        "V_FORM": layout.forms[1], "I_FORM": layout.forms[2], "WANTED": layout.wanted, **(select or {}),
    }  # fmt: skip
    fn = row_select_kernel if select else row_sort_kernel
    plan = Plan(name, fn, device, (workers, 1, 1), arguments, constants, work=layout.count * layout.length)
    size = workers * room * (2 if pack else 4) * place.itemsize
    counted = (workers * digits[1] << digits[0]) * int64.itemsize

    def run(x: int, values: int, indices: int) -> None:
        places, counters = device.allocate(size), device.allocate(counted)
        plan.run(x, places.ptr, counters.ptr, values, indices)

    return run
