"""The launches that sort one long row on several threads, where programs are plain code."""

from nbxtensor.base.dtypes import int64
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.ops.sort.cpu_part_kernels import (
    part_counts_kernel,
    part_keys_kernel,
    part_scatter_kernel,
    part_starts_kernel,
    part_write_kernel,
)
from nbxtensor.ops.sort.keys import RAW
from nbxtensor.ops.sort.layout import Layout, Run, packing, place_dtype

VECTOR = 64


def check_one_thread(name: str, device: Device) -> None:
    """Raise unless a program of `device` is one thread."""
    if device.profile.warp_size != 1:
        raise CompileError(
            f"nbx.{name}",
            "kernels that move one element after the other through memory race between threads",
            got=device.profile.arch,
            allowed="devices where a program is one thread",
        )


def sort_in_parts(name: str, device: Device, layout: Layout, digits: tuple[int, int], parts: int) -> Run:
    """Sort the only row in `parts`; `digits`: bits of a digit, and passes."""
    check_one_thread(name, device)
    pack, n, (bits, passes) = packing(layout), layout.length, digits
    raw, place, wide = Pointer(RAW[layout.key[0]]), Pointer(place_dtype(pack)), Pointer(int64)
    what: dict[str, Constant] = {"KEY": layout.key, "PACK": pack, "X_FORM": layout.forms[0], "VECTOR": VECTOR}

    def plan(
        fn: KernelFunction, arguments: dict[str, Argument], constants: dict[str, Constant], programs: int = parts
    ) -> Plan:
        return Plan(name, fn, device, (programs, 1, 1), arguments, constants, work=n)

    keys = plan(
        part_keys_kernel,
        {"x": raw, "places": place, "states": wide, "n": n, "parts": parts, "x_step": layout.steps[0]},
        what,
    )
    steps: list[tuple[Plan, Plan, Plan]] = []
    for number in range(passes):
        sign = 1 << (layout.key[0] - 1 - number * bits)
        last = number == passes - 1
        digit: dict[str, Argument] = {
            "shift": pack // 2 + number * bits, "mask": 2 * sign - 1 if last else (1 << bits) - 1,
            "flip": sign if last else 0,
        }  # fmt: skip
        walk: dict[str, Argument] = {"n": n, "parts": parts, "number": number}
        tables: dict[str, Argument] = {"counters": wide, "states": wide}
        sizes: dict[str, Constant] = {"DIGITS": digits}
        steps.append(
            (
                plan(part_counts_kernel, {"places": place, **tables, **walk, **digit}, sizes),
                plan(part_starts_kernel, {**tables, **walk}, sizes, 1),
                plan(part_scatter_kernel, {"places": place, **tables, **walk, **digit}, {"PACK": pack, **sizes}),
            )
        )
    write = plan(
        part_write_kernel,
        {
            "x": raw, "places": place, "states": wide, "values": raw, "indices": wide, "n": n, "limit": layout.limit,
            "parts": parts, "number": passes, "x_step": layout.steps[0], "v_step": layout.steps[1],
            "i_step": layout.steps[2],
        },
        {**what, "V_FORM": layout.forms[1], "I_FORM": layout.forms[2], "WANTED": layout.wanted},
    )  # fmt: skip
    size = n * (2 if pack else 4) * place.dtype.itemsize
    counted = (parts << bits) * int64.itemsize

    def run(x: int, values: int, indices: int) -> None:
        places, counters = device.allocate(size), device.allocate(counted)
        states = device.allocate((passes + 1) * int64.itemsize)
        keys.run(x, places.ptr, states.ptr)
        for counts, starts, scatter in steps:
            counts.run(places.ptr, counters.ptr, states.ptr)
            starts.run(counters.ptr, states.ptr)
            scatter.run(places.ptr, counters.ptr, states.ptr)
        write.run(x, places.ptr, states.ptr, values, indices)

    return run
