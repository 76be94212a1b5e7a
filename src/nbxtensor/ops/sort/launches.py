"""Which kernels sort or select: by device, length of the rows and how much of them is wanted."""

from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Plan
from nbxtensor.ops.sort.cpu import select_rows, sort_rows
from nbxtensor.ops.sort.layout import Layout, Run
from nbxtensor.ops.sort.radix import radix_sort
from nbxtensor.ops.sort.tile import LONGEST, log_of, packing, place_dtype, tile_plan
from nbxtensor.tensor.tensor import new

MOST_SELECTED = 512
PIECE_LOG = 12


def launches(name: str, device: Device, layout: Layout) -> Run:
    """A function of the addresses of x, values and indices that writes the first `limit` elements of sorted rows."""
    if device.profile.warp_size == 1:
        return (select_rows if 8 * layout.limit <= layout.length else sort_rows)(name, device, layout)
    if layout.limit <= MOST_SELECTED and 4 * layout.limit <= layout.length:
        return select(name, device, layout)
    if layout.length <= (LONGEST if packing(layout) else LONGEST // 2):
        return sort_tiles(name, device, layout)
    return radix_sort(name, device, layout)


def sort_tiles(name: str, device: Device, layout: Layout) -> Run:
    """Sort rows that fit into a tile."""
    log = log_of(layout.length)
    plan, _ = tile_plan(name, device, layout, log, log)

    def run(x: int, values: int, indices: int) -> None:
        plan.run(x, x, values, indices)

    return run


def select(name: str, device: Device, layout: Layout, piece_log: int = PIECE_LOG) -> Run:
    """Select the best of each piece of the rows, then of those, until one piece is left."""
    keep = log_of(layout.limit)
    stages: list[Plan] = []
    sizes: list[int] = []
    length = layout.length
    while True:
        log = min(piece_log, log_of(length))
        last = length <= 1 << log
        plan, pieces = tile_plan(name, device, layout, log, min(keep, log), stage=(not stages, last), length=length)
        stages.append(plan)
        if last:
            break
        length = pieces << keep
        sizes.append(layout.count * length)  # a multiple of 2: what lies behind is aligned
    place = place_dtype(packing(layout))
    parts = 1 if packing(layout) else 2

    def run(x: int, values: int, indices: int) -> None:
        source = None
        for plan, size in zip(stages, sizes, strict=False):
            found = new((parts * size,), place, device)
            plan.run(x, x if source is None else source.ptr, found.ptr, found.ptr + size * place.itemsize)
            source = found
        stages[-1].run(x, x if source is None else source.ptr, values, indices)

    return run
