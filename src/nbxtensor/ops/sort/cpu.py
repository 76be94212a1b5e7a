"""The launches of a sort where programs are plain code."""

from nbxtensor.base.dtypes import int64
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.ops.sort.cpu_kernels import row_sort_kernel
from nbxtensor.ops.sort.keys import RAW
from nbxtensor.ops.sort.layout import Layout, Run
from nbxtensor.ops.sort.tile import packing, place_dtype
from nbxtensor.tensor.tensor import new

WORKERS = 16
VECTOR = 64


def digits_for(layout: Layout) -> tuple[int, int]:
    """Bits of a digit and passes."""
    bits = 8 if layout.length < 1 << 13 or layout.key[0] <= 16 else 11
    return bits, -(-layout.key[0] // bits)


def sort_rows(name: str, device: Device, layout: Layout, digits: tuple[int, int] | None = None) -> Run:
    """A function of the addresses of x, values and indices that sorts the rows, each in one program."""
    digits = digits_for(layout) if digits is None else digits
    pack = packing(layout)
    raw, place = RAW[layout.key[0]], place_dtype(pack)
    workers = min(layout.count, WORKERS)
    plan = Plan(
        name, row_sort_kernel, device, (workers, 1, 1),
        {
            "x": Pointer(raw), "places": Pointer(place), "counters": Pointer(int64), "values": Pointer(raw),
            "indices": Pointer(int64), "n": layout.length, "limit": layout.limit, "count": layout.count,
            "workers": workers, "kept": layout.kept, "x_kept": layout.kept_strides[0],
            "v_kept": layout.kept_strides[1], "i_kept": layout.kept_strides[2], "x_step": layout.steps[0],
            "v_step": layout.steps[1], "i_step": layout.steps[2],
        },
        {
            "KEY": layout.key, "PACK": pack, "DIGITS": digits, "VECTOR": VECTOR, "X_FORM": layout.forms[0],
            "V_FORM": layout.forms[1], "I_FORM": layout.forms[2], "WANTED": layout.wanted,
        },
        work=layout.count * layout.length,
    )  # fmt: skip
    size = workers * layout.length * (2 if pack else 4)

    def run(x: int, values: int, indices: int) -> None:
        places = new((size,), place_dtype(pack), device)
        counters = new((workers * digits[1] << digits[0],), int64, device)
        plan.run(x, places.ptr, counters.ptr, values, indices)

    return run
