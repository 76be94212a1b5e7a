"""Which kernels sort or select: by device, length of the rows and how much of them is wanted."""

from nbxtensor.device.protocol import Device
from nbxtensor.ops.sort.cpu import select_rows, sort_rows
from nbxtensor.ops.sort.layout import Layout, Run
from nbxtensor.ops.sort.radix import radix_sort
from nbxtensor.ops.sort.selection import select
from nbxtensor.ops.sort.settings import Tile, log_of, longest
from nbxtensor.ops.sort.tile import tile_plan

MOST_SELECTED = 512


def launches(name: str, device: Device, layout: Layout) -> Run:
    """A function of the addresses of x, values and indices that writes the first `limit` elements of sorted rows."""
    if device.profile.warp_size == 1:
        return (select_rows if 8 * layout.limit <= layout.length else sort_rows)(name, device, layout)
    if layout.limit <= MOST_SELECTED and 4 * layout.limit <= layout.length:
        return select(name, device, layout)
    if layout.length <= longest(device.profile, layout):
        return sort_tiles(name, device, layout)
    return radix_sort(name, device, layout)


def sort_tiles(name: str, device: Device, layout: Layout, setting: Tile | None = None) -> Run:
    """Sort rows that fit into a tile."""
    log = log_of(layout.length)
    plan, _ = tile_plan(name, device, layout, log, log, setting=setting)

    def run(x: int, values: int, indices: int) -> None:
        plan.run(x, x, values, indices)

    return run
