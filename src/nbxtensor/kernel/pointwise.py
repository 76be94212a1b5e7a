"""The pointwise skeleton: one function of up to three operands, applied to every element.

Operands may be strided, broadcast or scalars. Where all operands are contiguous, the elements are taken as one flat
row; otherwise as rows times one inner dimension, after merging what can be merged. Whole tiles run unmasked, the tail
apart. The function sees one element at a time in the compute dtype, so neither layout nor tile can change a bit.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nbxtensor.base.dtypes import DType, float32, int64, uint64
from nbxtensor.base.errors import DTypeError, ShapeError
from nbxtensor.base.shapes import broadcast_shapes, broadcast_strides, contiguous_strides, merge_dims
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Buffer, Device
from nbxtensor.kernel.launch import Plan, Pointer, Scalar
from nbxtensor.kernel.math import cast, for_gpu
from nbxtensor.kernel.pointwise_settings import FlatSetting, TileSetting, flat_candidates, tile_candidates
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.tensor.check import check_device, check_tensor
from nbxtensor.tensor.form import Form, contiguous_form
from nbxtensor.tensor.memory import apart, check_writable, separate
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import launch_key

Operand = Tensor | bool | int | float

ELEMENT, UNIFORM, SCALAR, ABSENT = 0, 1, 2, 3
_LARGEST = 3.4028234e38
MAX_PLANS = 4096  # a plan costs little to make again; shapes that never repeat must not pile up


@kernel
def operand(x, offsets, mask, KIND: tl.constexpr, MASKED: tl.constexpr, TYPE: tl.constexpr):
    if KIND == SCALAR:
        value = x
    elif KIND == UNIFORM:
        value = tl.load(x)
    elif MASKED:
        value = tl.load(x + offsets, mask=mask)
    else:
        value = tl.load(x + offsets)
    return cast(value, TYPE)


@kernel
def operand_start(x, start, KIND: tl.constexpr):
    if KIND == ELEMENT:
        first = x + start
    else:
        first = x
    return first


@kernel
def apply(
    out_ptr, out_offsets, mask, x0, x1, x2, offsets0, offsets1, offsets2,
    FN: tl.constexpr, KINDS: tl.constexpr, MASKED: tl.constexpr, TYPES: tl.constexpr, RESULT: tl.constexpr,
):  # fmt: skip
    a = operand(x0, offsets0, mask, KINDS[0], MASKED, TYPES[0])
    if KINDS[1] == ABSENT:
        y = FN(a)
    else:
        b = operand(x1, offsets1, mask, KINDS[1], MASKED, TYPES[1])
        if KINDS[2] == ABSENT:
            y = FN(a, b)
        else:
            y = FN(a, b, operand(x2, offsets2, mask, KINDS[2], MASKED, TYPES[2]))
    y = cast(y, RESULT)
    if MASKED:
        tl.store(out_ptr + out_offsets, y, mask=mask)
    else:
        tl.store(out_ptr + out_offsets, y)


@kernel
def pointwise_flat_kernel(
    out_ptr, x0, x1, x2, n_elements,
    FN: tl.constexpr, KINDS: tl.constexpr, TYPES: tl.constexpr, RESULT: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    lanes = tl.arange(0, BLOCK_SIZE)
    # The bounds of a program join the pointers, so that a lane's offset takes 32 bits.
    out = out_ptr + start
    x0 = operand_start(x0, start, KINDS[0])
    x1 = operand_start(x1, start, KINDS[1])
    x2 = operand_start(x2, start, KINDS[2])
    left = n_elements - start
    if left >= BLOCK_SIZE:
        apply(out, lanes, None, x0, x1, x2, lanes, lanes, lanes, FN, KINDS, False, TYPES, RESULT)
    else:
        mask = lanes < left.to(tl.int32)
        apply(out, lanes, mask, x0, x1, x2, lanes, lanes, lanes, FN, KINDS, True, TYPES, RESULT)


@kernel
def inner_offsets(row_offsets, cols, strides, INNER: tl.constexpr, NDIM: tl.constexpr):
    if INNER == 0:
        offsets = row_offsets[:, None]
    elif INNER == 1:
        offsets = row_offsets[:, None] + cols[None, :]
    else:
        offsets = row_offsets[:, None] + cols[None, :] * strides[NDIM]
    return offsets


@kernel
def pointwise_tile_kernel(
    out_ptr, x0, x1, x2, n_rows, n_cols, shape, out_strides, strides0, strides1, strides2,
    FN: tl.constexpr, KINDS: tl.constexpr, TYPES: tl.constexpr, RESULT: tl.constexpr, INNERS: tl.constexpr,
    NDIM: tl.constexpr, NARROW: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr,
):  # fmt: skip
    col_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    pid = tl.program_id(0).to(tl.int64)
    row_start = pid // col_blocks * BLOCK_ROWS
    col_start = pid % col_blocks * BLOCK_COLS
    rows = row_start + tl.arange(0, BLOCK_ROWS)
    cols = col_start + tl.arange(0, BLOCK_COLS)
    rest = rows
    if NARROW:
        rest = rows.to(tl.int32)
    out_rows = tl.zeros([BLOCK_ROWS], tl.int64)
    rows0 = tl.zeros([BLOCK_ROWS], tl.int64)
    rows1 = tl.zeros([BLOCK_ROWS], tl.int64)
    rows2 = tl.zeros([BLOCK_ROWS], tl.int64)
    for step in tl.static_range(NDIM):
        if step == NDIM - 1:
            index = rest.to(tl.int64)
        else:
            size = shape[NDIM - 1 - step].to(rest.dtype)
            index = (rest % size).to(tl.int64)
            rest = rest // size
        out_rows += index * out_strides[NDIM - 1 - step]
        if KINDS[0] == ELEMENT:
            rows0 += index * strides0[NDIM - 1 - step]
        if KINDS[1] == ELEMENT:
            rows1 += index * strides1[NDIM - 1 - step]
        if KINDS[2] == ELEMENT:
            rows2 += index * strides2[NDIM - 1 - step]
    out = inner_offsets(out_rows, cols, out_strides, INNERS[0], NDIM)
    offsets0 = inner_offsets(rows0, cols, strides0, INNERS[1], NDIM)
    offsets1 = inner_offsets(rows1, cols, strides1, INNERS[2], NDIM)
    offsets2 = inner_offsets(rows2, cols, strides2, INNERS[3], NDIM)
    if (row_start + BLOCK_ROWS <= n_rows) & (col_start + BLOCK_COLS <= n_cols):
        apply(out_ptr, out, None, x0, x1, x2, offsets0, offsets1, offsets2, FN, KINDS, False, TYPES, RESULT)
    else:
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        apply(out_ptr, out, mask, x0, x1, x2, offsets0, offsets1, offsets2, FN, KINDS, True, TYPES, RESULT)


def _device_of(name: str, operands: Sequence[Operand], out: Tensor | None) -> Device:
    tensors = [o for o in (*operands, out) if isinstance(o, Tensor)]
    device = tensors[0].device
    for tensor in tensors:
        check_device(tensor, device, f"nbx.{name}")
    return device


def _make_plan(
    name: str,
    fn: KernelFunction,
    operands: tuple[Operand, ...],
    types: tuple[DType, ...],
    result: DType,
    out: Tensor | None,
    setting: FlatSetting | None = None,
) -> tuple[Plan, tuple[int, ...], DType, Device]:
    device = _device_of(name, operands, out)
    shape = broadcast_shapes(*(o.shape for o in operands if isinstance(o, Tensor)), function=f"nbx.{name}")
    if out is not None:
        check_out(name, out, shape, result, device)
    own = contiguous_strides(shape) if out is None else out.strides
    kinds: list[int] = []
    strides = [own]
    arguments: dict[str, Any] = {"out_ptr": Pointer(result)}
    for i, operand in enumerate(operands):
        if not isinstance(operand, Tensor):
            kinds.append(SCALAR)
            arguments[f"x{i}"] = Scalar(types[i] if types[i].is_float or types[i] is uint64 else int64)
            strides.append((0,) * len(shape))
        else:
            kinds.append(UNIFORM if operand.size == 1 else ELEMENT)
            arguments[f"x{i}"] = Pointer(operand.dtype)
            strides.append(broadcast_strides(operand.shape, operand.strides, shape, name))
    for _ in range(3 - len(operands)):
        strides.append((0,) * len(shape))
    absent = range(len(operands), 3)
    filled = (*kinds, *(ABSENT for _ in absent))
    constants: dict[str, Any] = {
        **{f"x{i}": None for i in absent},
        "FN": fn if device.profile.warp_size == 1 else for_gpu(fn),
        "KINDS": filled,
        "TYPES": (*types, *(types[0] for _ in absent)),
        "RESULT": result,
    }
    merged, steps = merge_dims(shape, strides)
    size = prod(shape)
    elements = [s for s, kind in zip(steps, (ELEMENT, *filled), strict=True) if kind == ELEMENT]
    flat = len(merged) <= 1 and all(s[-1:] == (1,) for s in elements)
    sizes = [result.itemsize] + [o.dtype.itemsize for o in operands if isinstance(o, Tensor) and o.size > 1]
    if size <= 1 or flat:
        arguments["n_elements"] = size

        def flat_plan(chosen: FlatSetting) -> Plan:
            grid = (-(-size // chosen.block), 1, 1)
            options = Options(num_warps=chosen.num_warps)
            own = {**constants, "BLOCK_SIZE": chosen.block}
            return Plan(name, pointwise_flat_kernel, device, grid, arguments, own, options, size)

        if setting is not None:
            return flat_plan(setting), shape, result, device
        key = launch_key("pointwise", "flat", {"elements": size}, sizes, device.target)
        return tuned(key, flat_candidates(device.profile, result.itemsize), flat_plan), shape, result, device
    outer = merged[:-1] or (1,)
    padded = [s if len(merged) > 1 else (0, *s) for s in steps]
    rows, cols = prod(outer), size // prod(outer)
    inners = tuple(s[-1] if s[-1] in (0, 1) else 2 for s in padded)
    names = ("out_strides", "strides0", "strides1", "strides2")
    arguments |= {"n_rows": rows, "n_cols": cols, "shape": outer, **dict(zip(names, padded, strict=True))}
    constants |= {"INNERS": inners, "NDIM": len(outer), "NARROW": rows < 2**31}

    def tile_plan(chosen: TileSetting) -> Plan:
        grid = (-(-rows // chosen.rows) * -(-cols // chosen.columns), 1, 1)
        own = {**constants, "BLOCK_ROWS": chosen.rows, "BLOCK_COLS": chosen.columns}
        options = Options(num_warps=chosen.num_warps)
        return Plan(name, pointwise_tile_kernel, device, grid, arguments, own, options, size)

    flags = ("".join(map(str, inners)),)
    key = launch_key("pointwise", "tile", {"count": rows, "length": cols}, sizes, device.target, flags)
    return tuned(key, tile_candidates(device.profile, rows, cols, inners), tile_plan), shape, result, device


def check_out(name: str, out: Tensor, shape: tuple[int, ...], dtype: DType, device: Device) -> None:
    """Raise unless a result of `shape` and `dtype` on `device` can be written into `out`."""
    if check_tensor(out, f"nbx.{name}", "out").dtype is not dtype:
        raise DTypeError(f"nbx.{name}", "out has the wrong dtype", got=out.dtype.name, allowed=dtype.name)
    if out.shape != shape:
        raise ShapeError(f"nbx.{name}", "out has the wrong shape", got=out.shape, allowed=str(shape))
    check_device(out, device, f"nbx.{name}")


def _key(operand: Operand | None) -> Form | None:
    return operand.form if isinstance(operand, Tensor) else None


_plans: dict[Any, tuple[Plan, tuple[int, ...], DType, Device]] = plan_cache()
_recent: dict[Any, tuple[Callable[..., object], Form, Callable[[int], Buffer]]] = plan_cache()


def pointwise(
    name: str,
    fn: KernelFunction,
    operands: tuple[Operand, ...],
    types: tuple[DType, ...],
    result: DType,
    out: Tensor | None = None,
    setting: FlatSetting | None = None,
) -> Tensor:
    """Apply `fn` to every element of the broadcast operands.

    Parameters
    ----------
    name
        Operator, for errors and recorders.
    fn
        Device function of one to three values.
    operands
        At least one tensor; Python scalars are converted to the operand's type.
    types
        Dtype in which `fn` sees each operand.
    result
        Dtype of the result.
    out
        Tensor of the broadcast shape and dtype `result` to write into; it may be one of the operands, or overlap
        them in any way.
    setting
        How contiguous elements are cut into programs; by default the first candidate. It changes no bit.
    """
    if out is not None:
        check_writable(check_tensor(out, f"nbx.{name}", "out"), f"nbx.{name}")
        operands = tuple(separate(o, out) if isinstance(o, Tensor) else o for o in operands)
    key: tuple[Any, ...] = (fn, result, types, _key(out), *map(_key, operands))
    if setting is not None:
        key = (setting, *key)
    entry = _plans.get(key)
    if entry is None:
        entry = _make_plan(name, fn, operands, types, result, out, setting)
        if len(_plans) >= MAX_PLANS:
            _plans.clear()
            _recent.clear()
        _plans[key] = entry
    plan, shape, _, device = entry
    target = new(shape, result, device) if out is None else out
    plan.run(target.ptr, *[o.ptr if isinstance(o, Tensor) else o for o in operands])
    return target


def recall(name: str, fn: KernelFunction, x: object, out: object) -> Tensor | None:
    """The quick way of a repeated call: operator `name` with `fn` on tensors like those that `remember` was told of."""
    if type(x) is not Tensor:
        return None
    if out is None:
        entry = _recent.get((name, fn, x.form))
        if entry is None:
            return None
        run, form, allocate = entry
        target = Tensor(allocate(form.nbytes), form.shape, form.strides, 0, form.dtype, form.device, form)
        run(target.ptr, x.ptr)
        return target
    if type(out) is Tensor and not out.buffer.readonly:
        entry = _recent.get((name, fn, x.form, None, out.form))
        if entry is not None and apart(x, out):
            entry[0](out.ptr, x.ptr)
            return out
    return None


def _scalar_form(value: object) -> type[float] | None:
    """`float` for a Python number that packing as fp32 rounds as it should be rounded."""
    kind = type(value)
    if kind is float:
        return float if -_LARGEST <= value <= _LARGEST else None  # pyright: ignore[reportOperatorIssue]
    return float if kind is int and -(2**24) <= value <= 2**24 else None  # pyright: ignore[reportOperatorIssue]


def recall_pair(name: str, fn: KernelFunction, a: Any, b: Any, out: object) -> Tensor | None:
    """As `recall`, for two tensors, or a tensor of float32 and a number."""
    if type(a) is Tensor:
        first, x = a.form, a.ptr
    else:
        first, x = _scalar_form(a), a
    if type(b) is Tensor:
        second, y = b.form, b.ptr
    else:
        second, y = _scalar_form(b), b
    if out is None:
        entry = _recent.get((name, fn, first, second))
        if entry is None:
            return None
        run, form, allocate = entry
        target = Tensor(allocate(form.nbytes), form.shape, form.strides, 0, form.dtype, form.device, form)
        run(target.ptr, x, y)
        return target
    if type(out) is Tensor and not out.buffer.readonly:
        entry = _recent.get((name, fn, first, second, out.form))
        if entry is not None and (first is float or apart(a, out)) and (second is float or apart(b, out)):
            entry[0](out.ptr, x, y)
            return out
    return None


def remember(
    name: str,
    fn: KernelFunction,
    computed: KernelFunction,
    types: tuple[DType, ...],
    result: DType,
    out: Tensor | None,
    *operands: Operand,
) -> None:
    """Let the next call of `fn` on tensors like these skip checks and promotion; they have just passed them.

    `computed` is the form of `fn` that ran.
    """
    forms = tuple(o.form if isinstance(o, Tensor) else _scalar_form(o) for o in operands)
    entry = _plans.get((computed, result, types, _key(out), *map(_key, operands)))
    if entry is None or None in forms:
        return
    if float in forms and any(isinstance(o, Tensor) and o.dtype is not float32 for o in operands):
        return  # a number would have to be rounded to another dtype first
    plan, shape, _, device = entry
    key = (name, fn, *forms) if out is None else (name, fn, *forms, *(None,) * (2 - len(forms)), out.form)
    _recent[key] = plan.run, contiguous_form(shape, result, device), device.allocate
