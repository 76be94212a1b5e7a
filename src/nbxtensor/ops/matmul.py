"""Matrix product: ``matmul(a, b)``.

``out[..., m, n] = sum_k a[..., m, k] * b[..., k, n]``

Shapes
    As the standard says: at least 1-D; leading axes broadcast; a 1-D operand is a row (first) or a column (second) and
    its axis goes. Any strides: transposed, sliced, reversed and broadcast operands are read where they are. K = 0
    gives 0.
Dtypes
    Operands are promoted. float32; float16 and bfloat16 (computed in float32, rounded once); float64; integers (exact,
    wrapping around).
Errors
    ShapeError for sizes that do not match, DTypeError for bool and storage-only dtypes, DeviceError.
Accuracy
    One fused multiply-add for each product. The chain runs in ascending k over chunks of 512; the sums of the chunks
    are added in order, from 0. So the error is at most ``(512 + K / 512) * 2^-24 * sum |a||b|`` in float32.
Guarantee
    universal: the order depends on k alone, never on tiles, batch or device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import DTypeError, ShapeError
from nbxtensor.base.promotion import result_type
from nbxtensor.base.shapes import broadcast_shapes, broadcast_strides, merge_dims
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.declare import operator
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.rows import power_of_two
from nbxtensor.kernel.tuned import plan_memo, tuned
from nbxtensor.ops._categories import check_tensor
from nbxtensor.ops._matmul_kernels import matmul_kernel, matmul_outer_kernel
from nbxtensor.tensor.check import check_device
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, empty
from nbxtensor.tuning.key import launch_key

CHUNK = 512
FEW_ROWS = 4
Ints = tuple[int, ...]
Types = tuple[DType, DType, DType]


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes and strides of a batched product.

    Attributes
    ----------
    m, n, k
        Rows and columns of each result, which lie `out_m` and 1 apart, and products in each element.
    batch
        Sizes of the axes of the batch; each `*_batch` holds an operand's strides for them.
    a_m, a_k, b_k, b_n
        Strides of the operands along rows, the summed axis and columns.
    """

    m: int
    n: int
    k: int
    batch: Ints
    a_batch: Ints
    b_batch: Ints
    out_batch: Ints
    a_m: int
    a_k: int
    b_k: int
    b_n: int
    out_m: int

    @property
    def count(self) -> int:
        return prod(self.batch)


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of one tile, the warps that compute it, and whether by outer products (then `bk` is how far it unrolls)."""

    bm: int
    bn: int
    bk: int
    num_warps: int
    outer: bool = False


def tile_candidates(product: Product, compute: DType, profile: Profile) -> tuple[Tile, ...]:
    """The tiles worth trying for a product, best guess first; none changes a bit.

    A step along k divides a chunk, and K where it can: that saves a mask.
    """
    one_thread = profile.warp_size == 1
    rows, columns = power_of_two(product.m), power_of_two(product.n)
    if compute is not dtypes.float32:
        return (Tile(min(16, rows), min(32, columns), 4, 4, outer=True),)
    if one_thread and rows <= FEW_ROWS:
        return tuple(
            dict.fromkeys(Tile(rows, min(wide, max(8, columns)), 8, 1, outer=True) for wide in (256, 128, 512))
        )
    limit = 128 if one_thread else 32
    bk = 16
    while bk < limit and product.k % (2 * bk) == 0:
        bk *= 2
    if product.k % bk:
        bk = 16 if product.k < 64 else 32
    if one_thread:
        large = product.m >= 512 and product.n >= 512
        blocks = [(128, 128), (128, 64), (64, 64)] if large else [(128, 64), (64, 64), (128, 32)]
        return tuple(dict.fromkeys(Tile(min(m, rows), min(n, max(8, columns)), bk, 1) for m, n in blocks))
    bm, bn = min(64, max(16, rows)), min(64, max(16, columns))
    if bn == 64 and product.m * product.n * product.count >= 2**23:
        bm = min(128, max(16, rows))
    blocks = [(bm, bn), (max(16, bm // 2), bn), (bm, max(16, bn // 2)), (max(16, bm // 2), max(16, bn // 2))]
    # More in a step, or tiles from 64 x 32 on with four warps, do not fit in the registers of every target.
    return tuple(
        dict.fromkeys(
            Tile(m, n, bk if m * n < 1024 or m * n == 2048 else min(bk, 16), 8 if m * n >= 2048 else 4)
            for m, n in blocks
        )
    )


def _parts(size: int, block: int, apart: bool) -> list[tuple[int, int, bool]]:
    """A dimension as (start, blocks, masked): whole blocks, and what is left apart or with them."""
    if not apart:
        return [(0, -(-size // block), size % block != 0)]
    whole = size // block
    parts = [(0, whole, False)] if whole else []
    return [*parts, (whole * block, 1, True)] if size % block else parts


def _plan(
    name: str,
    p: Product,
    types: Types,
    device: Device,
    tile: Tile,
    rows: tuple[int, int, bool],
    columns: tuple[int, int, bool],
) -> Plan:
    """The launch for one part of the result."""
    compute = compute_dtype(types[2])
    tiles = rows[1] * columns[1]
    arguments: dict[str, Argument] = {
        "a": Pointer(types[0]),
        "b": Pointer(types[1]),
        "out": Pointer(types[2]),
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "first_row": rows[0],
        "first_column": columns[0],
        "tiles_n": columns[1],
        "tiles": tiles,
        "a_m": p.a_m,
        "a_k": p.a_k,
        "b_k": p.b_k,
        "b_n": p.b_n,
        "out_m": p.out_m,
        "batch": p.batch,
        "a_batch": p.a_batch,
        "b_batch": p.b_batch,
        "out_batch": p.out_batch,
    }
    least = 1 if device.profile.warp_size == 1 or tile.outer else 16
    bm = min(tile.bm, max(least, power_of_two(p.m - rows[0])))
    bn = min(tile.bn, max(8, power_of_two(p.n - columns[0])))
    m_tail, n_tail = rows[2] and (p.m - rows[0]) % bm != 0, columns[2] and (p.n - columns[0]) % bn != 0
    constants: dict[str, Constant] = {"BM": bm, "BN": bn, "CHUNK_SIZE": CHUNK, "B_UNIT": p.b_n == 1}
    if tile.outer:
        constants |= {"TYPE": compute, "UNROLL": tile.bk, "WHOLE": not (m_tail or n_tail)}
    else:
        rest = p.k % CHUNK
        constants |= {
            "BK": tile.bk,
            "A_UNIT": p.a_k == 1,
            "M_TAIL": m_tail,
            "N_TAIL": n_tail,
            "K_TAIL": rest % tile.bk != 0,
            "CHUNKS": p.k >= CHUNK,
            "REST": rest != 0,
        }
    kernel = matmul_outer_kernel if tile.outer else matmul_kernel
    options = Options(num_warps=tile.num_warps)
    work = tiles * bm * bn * p.k * p.count // 8
    return Plan(name, kernel, device, (tiles * p.count, 1, 1), arguments, constants, options, work)


def product_of(
    a_shape: tuple[int, ...],
    a_strides: tuple[int, ...],
    b_shape: tuple[int, ...],
    b_strides: tuple[int, ...],
    function: str,
) -> tuple[Product, tuple[int, ...]]:
    """The product of operands of at least two axes, and the shape of its result."""
    m, k = a_shape[-2:]
    if b_shape[-2] != k:
        raise ShapeError(
            function,
            "the inner sizes differ",
            got=f"{a_shape} and {b_shape}",
            allowed="(..., m, k) with (..., k, n)",
        )
    n = b_shape[-1]
    lead = broadcast_shapes(a_shape[:-2], b_shape[:-2], function=function)
    shape = (*lead, m, n)
    a_lead = broadcast_strides(a_shape[:-2], a_strides[:-2], lead, function)
    b_lead = broadcast_strides(b_shape[:-2], b_strides[:-2], lead, function)
    out_lead = tuple(prod(shape[d + 1 :]) for d in range(len(lead)))
    a_m, a_k = a_strides[-2:]
    b_k, b_n = b_strides[-2:]
    many = [d for d in range(len(lead)) if lead[d] > 1]
    if many and 0 not in shape and all(b_lead[d] == 0 for d in many):
        # One right operand for the whole batch: the batch is more rows, where rows follow each other evenly.
        sizes, (steps, _) = merge_dims([*lead, m], [[*a_lead, a_m], [*out_lead, n]])
        if len(sizes) == 1:
            return Product(sizes[0], n, k, (1,), (0,), (0,), (0,), steps[0], a_k, b_k, b_n, n), shape
    batch, (a_batch, b_batch, out_batch) = merge_dims(lead, [a_lead, b_lead, out_lead])
    return Product(m, n, k, batch, a_batch, b_batch, out_batch, a_m, a_k, b_k, b_n, n), shape


def compute_dtype(dtype: DType) -> DType:
    """Dtype in which products of `dtype` are summed."""
    if dtype.is_float:
        return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    return dtypes.int64 if dtype.itemsize == 8 else dtypes.int32


@plan_memo
def plans_of(name: str, product: Product, types: Types, device: Device, tile: Tile | None) -> tuple[Plan, ...]:
    """The launches of a product; each takes the addresses of a, b and the result.

    Where a launch is cheap, whole tiles are launched apart from those that need masks.
    """
    profile = device.profile
    if tile is None:
        p, compute = product, compute_dtype(types[2])
        sizes = {"count": p.count, "m": p.m, "n": p.n, "k": p.k}
        steps = "".join(str(int(step == 1)) for step in (p.a_m, p.a_k, p.b_k, p.b_n))
        key = launch_key("matmul", compute.name, sizes, types, device.target, (f"step {steps}",))
        found = tile_candidates(product, compute, profile)
        return tuned(key, found, lambda chosen: plans_of(name, product, types, device, chosen))
    rows = _parts(product.m, tile.bm, profile.warp_size == 1)
    columns = _parts(product.n, tile.bn, profile.warp_size == 1)
    return tuple(_plan(name, product, types, device, tile, r, c) for r in rows for c in columns)


def reference(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    if a.dtype.kind in "iu":
        return np.matmul(a, b)
    return np.matmul(a.astype(np.float64), b.astype(np.float64))


def samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield rng.standard_normal((3, 33, 65), np.float32), rng.standard_normal((65, 17), np.float32)
    yield rng.integers(-5, 5, (4, 7), np.int16), rng.integers(-5, 5, (7, 3), np.int16)


@operator("matmul", kernels=(matmul_kernel, matmul_outer_kernel), reference=reference, samples=samples)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of the last two axes; leading axes broadcast.

    Parameters
    ----------
    a, b
        Operands of at least one axis; a 1-D operand is a row (`a`) or a column (`b`).
    """
    return product(a, b, None)


def product(a: Tensor, b: Tensor, tile: Tile | None) -> Tensor:
    """`matmul` with a chosen tile; none changes a bit."""
    if not check_tensor("matmul", a).shape or not check_tensor("matmul", b).shape:
        raise ShapeError("nbx.matmul", "an operand is 0-d", got=f"{a.shape} and {b.shape}", allowed="at least 1-D")
    check_device(b, a.device, "nbx.matmul")
    dtype = result_type(a.dtype, b.dtype, function="nbx.matmul")
    if dtype.is_bool or dtype.storage_only:
        raise DTypeError("nbx.matmul", "unsupported dtype", got=dtype, allowed="integers and floats", mend="use astype")
    left = a if a.ndim > 1 else a.reshape(1, -1)
    right = b if b.ndim > 1 else b.expand_dims(1)
    found, shape = product_of(left.shape, left.strides, right.shape, right.strides, "nbx.matmul")
    out = empty(shape, dtype, a.device)
    if out.size and found.k == 0:
        table["copy_into"](out, 0)
    elif out.size:
        for plan in plans_of("matmul", found, (a.dtype, b.dtype, dtype), a.device, tile):
            plan.run(left.ptr, right.ptr, out.ptr)
    if a.ndim == 1 and b.ndim == 1:
        return out.reshape(())
    if a.ndim == 1:
        return out.reshape((*shape[:-2], shape[-1]))
    return out.reshape(shape[:-1]) if b.ndim == 1 else out
