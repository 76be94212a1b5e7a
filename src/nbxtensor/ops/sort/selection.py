"""Selecting the first few elements (in order) of rows where programs run on many threads.

Short rows are one tile: `tile_sort_kernel` keeps the best. Of a long row, elements are put into groups and the best of
each group is found, which costs little more than reading. The wanted elements lie in the groups with the best bests:
those are selected (in pieces of a tile, until one piece is left), and then the elements among those groups.
"""

from nbxtensor.base.dtypes import int64
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.tuned import tuned
from nbxtensor.ops.sort.keys import RAW
from nbxtensor.ops.sort.layout import Layout, Run, key_of_launch, packing, place_dtype
from nbxtensor.ops.sort.selection_kernels import group_best_kernel, group_select_kernel
from nbxtensor.ops.sort.settings import Selection, log_of, selection_candidates
from nbxtensor.ops.sort.tile import tile_plan

Stage = tuple[Plan, int]
"""A launch that selects, and how many elements of each row it leaves."""


def select(name: str, device: Device, layout: Layout, setting: Selection | None = None) -> Run:
    """Select the first `limit` elements of each row."""
    if setting is None:
        found = selection_candidates(device.profile, layout, name)
        key = key_of_launch("selection", layout, device)
        return tuned(key, found, lambda chosen: select(name, device, layout, chosen))
    if setting.size:
        stages = _group_stages(name, device, layout, setting)
    else:
        stages = _stages(name, device, layout, layout.length, setting, (True, True))
    parts, itemsize = (1 if packing(layout) else 2), place_dtype(packing(layout)).itemsize
    between = [(plan, layout.count * left * itemsize) for plan, left in stages[:-1]]
    last, _ = stages[-1]

    def run(x: int, values: int, indices: int) -> None:
        source, held = x, None
        for plan, size in between:
            target = device.allocate(parts * size)
            plan.run(x, source, target.ptr, target.ptr + (parts - 1) * size)
            source, held = target.ptr, target  # what `held` held is freed once it was read
        last.run(x, source, values, indices)
        del held

    return run


def _stages(
    name: str, device: Device, layout: Layout, length: int, setting: Selection, ends: tuple[bool, bool]
) -> list[Stage]:
    """Launches that select among rows of `length`, in pieces, until one is left.

    `ends`: whether the first reads the tensor, and whether the last writes the results.
    """
    keep = log_of(layout.limit)
    stages: list[Stage] = []
    while True:
        log = max(keep, min(setting.piece_log, log_of(length)))
        done = length <= 1 << log
        stage = (ends[0] and not stages, ends[1] and done)
        plan, pieces = tile_plan(name, device, layout, log, keep, stage=stage, length=length, quick=not ends[0])
        length = pieces << keep
        stages.append((plan, length))
        if done:
            return stages


def _group_stages(name: str, device: Device, layout: Layout, setting: Selection) -> list[Stage]:
    """The best of groups, the best of those, and the elements among their groups."""
    columns = 4 * device.profile.warp_size * setting.num_warps
    pieces = -(-layout.length // (setting.size * columns))
    best = Plan(
        name, group_best_kernel, device, (layout.count * pieces, 1, 1),
        {
            **_pointers(layout, False), "n": layout.length, "pieces": pieces, "kept": layout.kept,
            "x_kept": layout.kept_strides[0], "x_step": layout.steps[0],
        },
        {
            "SIZE": setting.size, "COLUMNS": columns, "STEPS": setting.steps, "KEY": layout.key,
            "PACK": packing(layout), "X_FORM": layout.forms[0],
        },
        Options(num_warps=setting.num_warps), layout.count * layout.length,
    )  # fmt: skip
    found = pieces * columns
    stages = [(best, found), *_stages(name, device, layout, found, setting, (False, False))]
    groups = (setting.size, columns, 1 << log_of(layout.limit))
    return [*stages, (_last_network(name, device, layout, setting, groups), 0)]


def _pointers(layout: Layout, last: bool) -> dict[str, Argument]:
    """The tensor, what was selected so far, and what is selected now (`last`: the results)."""
    raw, place = Pointer(RAW[layout.key[0]]), Pointer(place_dtype(packing(layout)))
    return {"x": raw, "places": place, "values": raw if last else place, "indices": Pointer(int64)}


def _walk(layout: Layout) -> dict[str, Argument]:
    """How the rows of x and of the results lie."""
    return {
        "kept": layout.kept, "x_kept": layout.kept_strides[0], "v_kept": layout.kept_strides[1],
        "i_kept": layout.kept_strides[2], "x_step": layout.steps[0], "v_step": layout.steps[1],
        "i_step": layout.steps[2],
    }  # fmt: skip


def _forms(layout: Layout) -> dict[str, Constant]:
    return {
        "KEY": layout.key, "PACK": packing(layout), "X_FORM": layout.forms[0], "V_FORM": layout.forms[1],
        "I_FORM": layout.forms[2], "WANTED": layout.wanted,
    }  # fmt: skip


def _last_network(name: str, device: Device, layout: Layout, setting: Selection, groups: tuple[int, int, int]) -> Plan:
    """One program a row: a network over the elements of the best groups."""
    keep, threads = log_of(layout.limit), device.profile.warp_size
    log = keep + log_of(setting.size)
    warps = max(1, (1 << log) // (8 * threads)) if threads > 1 else 1
    spread = (threads * warps).bit_length() - 1
    return Plan(
        name, group_select_kernel, device, (layout.count, 1, 1),
        {
            **_pointers(layout, True), "n": layout.length, "limit": layout.limit, "count": layout.count,
            **_walk(layout),
        },
        {"GROUPS": groups, "NET": (log, 0, min(spread, log), keep), **_forms(layout)},
        Options(num_warps=warps), layout.count << log,
    )  # fmt: skip
