"""Fuzzer operations that move, combine and reduce elements of a tile."""

import numpy as np

import fuzz_numeric as fn
from fuzz_numeric import INTS
from fuzz_program import Var

LIMIT = 1024
COMBINE = {
    "_add": (fn.add, INTS),
    "_mul": (fn.multiply, INTS),
    "_max": (lambda a, b: fn.number_extreme(True, a, b), (*INTS, "fp32", "fp64")),
    "_min": (lambda a, b: fn.number_extreme(False, a, b), (*INTS, "fp32", "fp64")),
    "_and": (np.bitwise_and, (*INTS, "i1")),
    "_or": (np.bitwise_or, (*INTS, "i1")),
    "_xor": (np.bitwise_xor, (*INTS, "i1")),
}


def size(var: Var) -> int:
    return int(np.prod(var.shape, dtype=int))


def tile(g, where=lambda v: True, dtypes=None) -> Var | None:
    return g.find(dtypes, where=lambda v: v.shape != () and where(v))


def reshape(g) -> bool:
    a = tile(g)
    if a is None:
        return False
    n = size(a)
    rank = int(g.rng.integers(1, 4))
    shape: list[int] = []
    for _ in range(rank - 1):
        part = 1 << int(g.rng.integers(0, n.bit_length()))
        shape.append(part)
        n //= part
    shape.append(n)
    new = g.pick([tuple(shape), g.tile if size(a) == int(np.prod(g.tile)) else tuple(shape)])
    g.let(f"tl.reshape({a.name}, {new})", a.dtype, new, lambda env: env.of(a).reshape(new))
    return True


def permute(g) -> bool:
    a = tile(g, lambda v: len(v.shape) > 1)
    if a is None:
        return False
    axes = tuple(int(i) for i in g.rng.permutation(len(a.shape)))
    shape = tuple(a.shape[i] for i in axes)
    g.let(f"tl.permute({a.name}, {axes})", a.dtype, shape, lambda env: env.of(a).transpose(axes))
    return True


def expand(g) -> bool:
    a = tile(g, lambda v: len(v.shape) < 3)
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape) + 1))
    shape = (*a.shape[:axis], 1, *a.shape[axis:])
    g.let(f"tl.expand_dims({a.name}, {axis})", a.dtype, shape, lambda env: np.expand_dims(env.of(a), axis))
    return True


def broadcast(g) -> bool:
    a = tile(g, lambda v: 1 in v.shape)
    if a is None:
        return False
    fitting = len(a.shape) == len(g.tile) and all(s in (1, t) for s, t in zip(a.shape, g.tile, strict=True))
    shape = g.tile if fitting else tuple(4 if s == 1 else s for s in a.shape)
    if int(np.prod(shape)) > LIMIT:
        return False
    g.let(f"tl.broadcast_to({a.name}, {shape})", a.dtype, shape, lambda env: np.broadcast_to(env.of(a), shape))
    return True


def reduce(g) -> bool:
    name = g.pick(list(COMBINE))
    operation, dtypes = COMBINE[name]
    a = tile(g, dtypes=dtypes)
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape)))
    keep = g.chance(0.4)
    shape = tuple((1,) if i == axis and keep else () if i == axis else (n,) for i, n in enumerate(a.shape))
    shape = tuple(n for part in shape for n in part)

    def value(env):
        result = fn.reduce(operation, env.of(a), axis)
        return np.expand_dims(result, axis) if keep else result

    g.let(f"tl.reduce({a.name}, {axis}, {name}, keep_dims={keep})", a.dtype, shape, value)
    return True


def extreme_and_index(g) -> bool:
    """max or min with the index of its first place; NaN has no order here, so only integers."""
    a = tile(g, dtypes=("i32", "i64", "u32"))
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape)))
    shape = tuple(n for i, n in enumerate(a.shape) if i != axis)
    text, index, value = g.pick([("max", np.argmax, np.max), ("min", np.argmin, np.min)])
    g.let(f"tl.{text}({a.name}, {axis})", a.dtype, shape, lambda env: value(env.of(a), axis))
    g.let(f"tl.arg{text}({a.name}, {axis})", "i32", shape, lambda env: index(env.of(a), axis).astype(np.int32))
    return True


def chain_of_pairs(g) -> bool:
    """Sum by a tree of two-element reductions: neighbours, or halves."""
    a = tile(g, lambda v: size(v) >= 4, ("fp32", "fp64", "i32", "fp16"))
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape)))
    var = a
    while var.shape[axis] > 1:
        n = var.shape[axis]
        halves = g.chance(0.5)
        split = (*var.shape[:axis], *((2, n // 2) if halves else (n // 2, 2)), *var.shape[axis + 1 :])
        shape = (*var.shape[:axis], n // 2, *var.shape[axis + 1 :])
        at = axis if halves else axis + 1
        var = g.let(
            f"tl.reduce(tl.reshape({var.name}, {split}), {at}, _add)", var.dtype, shape,
            lambda env, var=var, split=split, at=at: fn.reduce(fn.add, env.of(var).reshape(split), at),
        )  # fmt: skip
        if g.chance(0.1):
            break
    return True


def scan(g) -> bool:
    name = g.pick(list(COMBINE))
    operation, dtypes = COMBINE[name]
    a = tile(g, dtypes=tuple(d for d in dtypes if d != "i1"))
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape)))
    reverse = g.chance(0.3)
    g.let(f"tl.associative_scan({a.name}, {axis}, {name}, reverse={reverse})", a.dtype, a.shape,
          lambda env: fn.scan(operation, env.of(a), axis, reverse))  # fmt: skip
    return True


def gather(g) -> bool:
    a = tile(g)
    if a is None:
        return False
    axis = int(g.rng.integers(0, len(a.shape)))
    n = a.shape[axis]
    index = g.find(("i32", "i64", "u32"), a.shape)
    if index is None:
        return False
    picks = g.let(f"({index.name} & {n - 1}).to(tl.int32)", "i32", a.shape,
                  lambda env: (env.of(index) & np.asarray(n - 1, fn.NUMPY[index.dtype])).astype(np.int32))  # fmt: skip
    g.let(f"tl.gather({a.name}, {picks.name}, {axis})", a.dtype, a.shape,
          lambda env: np.take_along_axis(env.of(a), env.of(picks).astype(np.int64), axis))  # fmt: skip
    return True


def join(g) -> bool:
    a = tile(g, lambda v: size(v) <= LIMIT // 2 and len(v.shape) < 3)
    b = g.find((a.dtype,), a.shape) if a is not None else None
    if a is None or b is None:
        return False
    if g.chance(0.4):
        shape = (*a.shape[:-1], a.shape[-1] * 2)
        g.let(f"tl.interleave({a.name}, {b.name})", a.dtype, shape,
              lambda env: np.stack([env.of(a), env.of(b)], -1).reshape(shape))  # fmt: skip
        return True
    g.let(f"tl.join({a.name}, {b.name})", a.dtype, (*a.shape, 2), lambda env: np.stack([env.of(a), env.of(b)], -1))
    return True


def split(g) -> bool:
    a = tile(g, lambda v: v.shape[-1] == 2 and len(v.shape) > 1)
    if a is None:
        a = tile(g, lambda v: v.shape[-1] > 2)
        if a is None:
            return False
        shape = (*a.shape[:-1], a.shape[-1] // 2, 2)
        b = a
        a = g.let(f"tl.reshape({a.name}, {shape})", a.dtype, shape, lambda env, b=b: env.of(b).reshape(shape))
    part = int(g.rng.integers(2))
    g.let(f"tl.split({a.name})[{part}]", a.dtype, a.shape[:-1], lambda env: env.of(a)[..., part])
    return True


SHAPES = {
    "reshape": (3, reshape), "permute": (3, permute), "expand": (2, expand), "broadcast": (3, broadcast),
    "reduce": (5, reduce), "extreme_and_index": (2, extreme_and_index), "chain_of_pairs": (2, chain_of_pairs),
    "scan": (3, scan), "gather": (2, gather), "join": (2, join), "split": (2, split),
}  # fmt: skip
