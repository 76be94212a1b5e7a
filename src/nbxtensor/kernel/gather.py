"""Gathering: every element of the result is read at a place that index tensors name.

One kernel serves `take`, `take_along_axis` and `gather_nd`. Elements travel as raw bits. A negative index counts from
the end. Devices whose memory the host can read check the indices before the launch; elsewhere an index beyond the axis
is moved to its nearest end, so that nothing outside the tensor is ever read.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import DeviceError, DTypeError, IndexingError
from nbxtensor.base.shapes import merge_dims
from nbxtensor.base.text import counted
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.rows import offset_of, power_of_two
from nbxtensor.kernel.tuned import FIXED, plan_memo, tuned
from nbxtensor.tensor.check import check_tensor
from nbxtensor.tensor.tensor import Tensor
from nbxtensor.tuning.key import launch_key

_BITS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def bits_dtype(dtype: DType) -> DType:
    """The integer dtype of the same size, as which elements are moved."""
    return _BITS[dtype.itemsize]


@kernel
def _inner(rows, columns, stride, KIND: tl.constexpr):
    """Offsets of a tile from those of its rows; KIND: the stride along the columns is 0, 1 or another (2)."""
    if KIND == 0:
        offsets = rows[:, None]
    elif KIND == 1:
        offsets = rows[:, None] + columns[None, :]
    else:
        offsets = rows[:, None] + (columns * stride)[None, :]
    return offsets


@kernel
def gather_kernel(
    x, index, out, n_rows, n_columns, shape, x_strides, index_strides, out_strides, x_inner, index_inner, out_inner,
    component, sizes, steps,
    COUNT: tl.constexpr, X_KIND: tl.constexpr, INDEX_KIND: tl.constexpr, OUT_KIND: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A tile of the result. COUNT: indices to an element, `component` apart, into axes of `sizes` and `steps`."""
    blocks = tl.cdiv(n_columns, BLOCK_COLUMNS)
    program = tl.program_id(0).to(tl.int64)
    rows = program // blocks * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = program % blocks * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    valid = rows < n_rows
    if INDEX_KIND == 0:
        index_mask = valid[:, None]
    else:
        index_mask = valid[:, None] & (columns < n_columns)[None, :]
    places = _inner(offset_of(rows, shape, index_strides), columns, index_inner, INDEX_KIND)
    source = _inner(offset_of(rows, shape, x_strides), columns, x_inner, X_KIND)
    for c in tl.static_range(COUNT):
        if WHOLE:
            i = tl.load(index + (places + c * component)).to(tl.int64)
        else:
            i = tl.load(index + (places + c * component), mask=index_mask, other=0).to(tl.int64)
        i = tl.where(i < 0, i + sizes[c], i)
        i = tl.minimum(tl.maximum(i, 0), sizes[c] - 1)
        source = source + i * steps[c]
    target = _inner(offset_of(rows, shape, out_strides), columns, out_inner, OUT_KIND)
    if WHOLE:
        tl.store(out + target, tl.load(x + source))
    else:
        mask = valid[:, None] & (columns < n_columns)[None, :]
        tl.store(out + target, tl.load(x + source, mask=mask, other=0), mask=mask)


def _kind(stride: int) -> int:
    return stride if stride in (0, 1) else 2


Steps = tuple[int, ...]


@plan_memo
def _plan(
    name: str,
    device: Device,
    types: tuple[DType, DType],
    shape: Steps,
    strides: tuple[Steps, Steps, Steps],
    component: int,
    sizes: Steps,
    steps: Steps,
) -> Plan:
    merged, (x, index, out) = merge_dims(shape, strides)
    rows, columns = prod(merged[:-1]), merged[-1]
    elements = 4096 if device.profile.warp_size == 1 else 1024
    block_columns = min(elements, power_of_two(columns))
    block_rows = max(1, min(power_of_two(rows), elements // block_columns))
    arguments: dict[str, Argument] = {
        "x": Pointer(types[0]),
        "index": Pointer(types[1]),
        "out": Pointer(types[0]),
        "n_rows": rows,
        "n_columns": columns,
        "shape": merged[:-1] or (1,),
        "x_strides": x[:-1] or (0,),
        "index_strides": index[:-1] or (0,),
        "out_strides": out[:-1] or (0,),
        "x_inner": x[-1],
        "index_inner": index[-1],
        "out_inner": out[-1],
        "component": component,
        "sizes": sizes,
        "steps": steps,
    }
    constants: dict[str, Constant] = {
        "COUNT": len(sizes),
        "X_KIND": _kind(x[-1]),
        "INDEX_KIND": _kind(index[-1]),
        "OUT_KIND": _kind(out[-1]),
        "BLOCK_ROWS": block_rows,
        "BLOCK_COLUMNS": block_columns,
        "WHOLE": rows % block_rows == 0 and columns % block_columns == 0,
    }
    grid = (-(-rows // block_rows) * -(-columns // block_columns), 1, 1)
    options = Options(num_warps=4)
    kinds = f"step {constants['X_KIND']}{constants['INDEX_KIND']}{constants['OUT_KIND']}"
    lengths = {"count": rows, "length": columns}
    key = launch_key("gather", f"{len(sizes)} axes", lengths, [t.itemsize for t in types], device.target, (kinds,))
    return tuned(
        key, FIXED, lambda _: Plan(name, gather_kernel, device, grid, arguments, constants, options, rows * columns)
    )


def check_index(name: str, index: Tensor, x: Tensor) -> None:
    """Raise unless `index` is a tensor of integers on the device of `x`."""
    check_tensor(x, f"nbx.{name}")
    check_tensor(index, f"nbx.{name}", "the index")
    if not index.dtype.is_integer:
        raise DTypeError(f"nbx.{name}", "an index tensor holds integers", got=index.dtype)
    if index.device is not x.device:
        raise DeviceError(
            f"nbx.{name}",
            "x and the indices are on different devices",
            got=f"{x.device.name} and {index.device.name}",
            mend="move one of them with to_device",
        )


def check_bounds(name: str, index: Tensor, size: int) -> None:
    """Raise if an index is outside an axis of `size`, as far as the host can see."""
    if index.size == 0:
        return
    if size == 0:
        raise IndexingError(
            f"nbx.{name}", "the axis is empty, no index fits", got=counted(index.size, "index", "indices")
        )
    if not (index.device.computes and index.device.host_accessible):
        return
    values: Any = index.numpy()
    low, high = int(values.min()), int(values.max())
    if low < -size or high >= size:
        bad = low if low < -size else high
        raise IndexingError(f"nbx.{name}", "an index is out of bounds", got=bad, allowed=f"{-size} to {size - 1}")


def gather(
    name: str,
    x: Tensor,
    x_strides: Sequence[int],
    index: Tensor,
    index_strides: Sequence[int],
    axes: Sequence[int],
    out: Tensor,
    component: int = 0,
) -> None:
    """Fill `out`: an element at p comes from ``x_strides . p`` plus, for each axis, its index times its stride.

    Parameters
    ----------
    x_strides, index_strides
        Strides of x and of the index tensor for every axis of `out`; 0 where an axis does not move them.
    axes
        Axes of `x` that indices choose along; the index of the c-th lies ``c * component`` elements further.
    """
    if out.size == 0:
        return
    types = (bits_dtype(x.dtype), index.dtype)
    sizes, steps = tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes)
    strides = (tuple(x_strides), tuple(index_strides), out.strides)
    _plan(name, x.device, types, out.shape, strides, component, sizes, steps).run(x.ptr, index.ptr, out.ptr)
