"""Long rows: the launches of a radix sort, 8 bits a pass."""

from nbxtensor.base.dtypes import int32, int64
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import ALIGNMENT, Argument, Constant, Plan, Pointer
from nbxtensor.kernel.rows import power_of_two
from nbxtensor.kernel.tuned import tuned
from nbxtensor.ops.sort.keys import RAW
from nbxtensor.ops.sort.layout import Layout, Run, key_of_launch, packing, place_dtype
from nbxtensor.ops.sort.radix_kernels import (
    BINS,
    radix_sort_histogram_kernel,
    radix_sort_scatter_kernel,
    radix_sort_tile_counts_kernel,
    radix_sort_tile_prefix_kernel,
)
from nbxtensor.ops.sort.settings import Radix, radix_candidates

DIGIT = 8
CHUNKS = 128
"""So many chunks of a row are wanted at most."""


def radix_plans(name: str, device: Device, layout: Layout, setting: Radix | None = None) -> list[list[Plan]]:
    """The launches of each pass: counts, (prefix of chunks,) histogram, scatter."""
    if setting is None:
        found = radix_candidates(device.profile, layout, name)
        key = key_of_launch("radix", layout, device)
        return tuned(key, found, lambda chosen: radix_plans(name, device, layout, chosen))
    pack, n, count = packing(layout), layout.length, layout.count
    total, tile = n * count, 1 << setting.log
    tiles = -(-n // tile)
    chunk = max(setting.chunk, power_of_two(-(-tiles // CHUNKS))) if tiles > 2 * setting.chunk else 1
    chunks = -(-tiles // chunk)
    raw, place = RAW[layout.key[0]], place_dtype(pack)
    base = int32 if n < 1 << 31 else int64
    spread = (device.profile.warp_size * setting.num_warps).bit_length() - 1
    threads = device.profile.warp_size > 1
    options = Options(num_warps=setting.num_warps)
    counters = Options(num_warps=2 * setting.num_warps if threads else 1)
    tables = Options(num_warps=8 if threads else 1)
    walk: dict[str, Argument] = {"kept": layout.kept, "x_kept": layout.kept_strides[0]}
    passes: list[list[Plan]] = []
    for p in range(layout.key[0] // DIGIT):
        last = p == layout.key[0] // DIGIT - 1
        which: dict[str, Constant] = {"PASS": (int(p == 0), int(last))}
        what: dict[str, Constant] = {"KEY": layout.key, "PACK": pack, "X_FORM": layout.forms[0], **which}
        counts = Plan(
            name, radix_sort_tile_counts_kernel, device, (count * tiles, 1, 1),
            {
                "x": Pointer(raw), "places": Pointer(place), "starts": Pointer(int32), "done": Pointer(int32),
                "n": n, "last": n - 1, "total": total, "tiles": tiles, "number": p, **walk, "x_step": layout.steps[0],
            },
            {"TILE": tile, **what}, counters, total,
        )  # fmt: skip
        prefix = Plan(
            name, radix_sort_tile_prefix_kernel, device, (count * chunks, 1, 1),
            {"starts": Pointer(int32), "totals": Pointer(int32), "n": n, "tiles": tiles, "chunks": chunks},
            {"TILE": tile, "CHUNK": chunk, "BLOCK": setting.block}, tables, count * tiles * BINS,
        )  # fmt: skip
        histogram = Plan(
            name, radix_sort_histogram_kernel, device, (count, 1, 1),
            {
                "starts": Pointer(int32), "totals": Pointer(int32), "bases": Pointer(base), "done": Pointer(int32),
                "done_after": Pointer(int32), "n": n, "chunks": chunks,
            },
            {"TILE": tile, "BLOCK": setting.block, "DIRECT": chunk == 1, **which},
            tables, count * chunks * BINS,
        )  # fmt: skip
        scatter = Plan(
            name, radix_sort_scatter_kernel, device, (count * tiles, 1, 1),
            {
                "x": Pointer(raw), "places": Pointer(place), "starts": Pointer(int32), "bases": Pointer(base),
                "done": Pointer(int32), "done_after": Pointer(int32), "values": Pointer(raw), "indices": Pointer(int64),
                "n": n, "last": n - 1, "total": total, "limit": layout.limit, "tiles": tiles, "chunks": chunks,
                "number": p, **walk, "v_kept": layout.kept_strides[1], "i_kept": layout.kept_strides[2],
                "x_step": layout.steps[0], "v_step": layout.steps[1], "i_step": layout.steps[2],
            },
            {
                "NET": (setting.log, 0, min(spread, setting.log), setting.log), "CHUNK": chunk, **what,
                "V_FORM": layout.forms[1], "I_FORM": layout.forms[2], "WANTED": layout.wanted,
            },
            options, total,
        )  # fmt: skip
        passes.append([counts, *([prefix] if chunk > 1 else []), histogram, scatter])
    return passes


def radix_sort(name: str, device: Device, layout: Layout, setting: Radix | None = None) -> Run:
    """A function of the addresses of x, values and indices that sorts the rows."""
    passes = radix_plans(name, device, layout, setting)
    pack, count = packing(layout), layout.count
    states = min(2, len(passes) - 1) if pack else 4 * (len(passes) > 1)
    tiles = passes[0][0].grid[0] // count
    chunks = int(passes[0][-1].arguments["chunks"])  # pyright: ignore[reportArgumentType]
    base = passes[0][-1].arguments["bases"]
    assert isinstance(base, Pointer)

    nbytes = max(16, states * count * layout.length * place_dtype(pack).itemsize)
    tables = 4 * count * tiles * BINS, 4 * count * chunks * BINS, base.dtype.itemsize * count * chunks * BINS
    step = -(-4 * count // ALIGNMENT) * ALIGNMENT

    def run(x: int, values: int, indices: int) -> None:
        places, done = device.allocate(nbytes), device.allocate(step * (len(passes) + 1))
        starts, totals, bases = map(device.allocate, tables)
        for p, plans in enumerate(passes):
            before, after = done.ptr + step * p, done.ptr + step * (p + 1)
            plans[0].run(x, places.ptr, starts.ptr, before)
            if len(plans) == 4:
                plans[1].run(starts.ptr, totals.ptr)
            plans[-2].run(starts.ptr, totals.ptr, bases.ptr, before, after)
            plans[-1].run(x, places.ptr, starts.ptr, bases.ptr, before, after, values, indices)

    return run
