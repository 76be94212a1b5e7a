"""Fuzzer operations that touch memory: loads of all shapes, pointers that walk through a loop, integer atomics."""

import numpy as np

import fuzz_numeric as fn
from fuzz_program import Env, Loop, Statement

LAST = 4096 - 1


def load(g) -> bool:
    """A tile of memory: plain, moved, reversed, strided, transposed, one row or column, or gathered."""
    dtype = g.pick([*g.dtypes, *g.dtypes, "i1"])
    known = [n for n, t in g.arguments.items() if n[0] == "x" and t == f"*{dtype}"]
    name = g.pick(known) if known and g.chance(0.5) else g.buffer(dtype)
    shape = g.tile
    form = g.pick(["plain", "plain", "plain", "moved", "reversed", "strided", "axes", "one", "gather", "scalar"])
    source = g.find(fn.INTS, where=lambda v: v.dtype not in ("i8", "u8", "i16", "u16")) if form == "gather" else None
    if form == "scalar":
        at = g.let(f"{g.pid.name} * 3", "i32", (), lambda env: env.of(g.pid) * np.int32(3), shy=True)
    elif source is not None:
        most = np.asarray(LAST, fn.NUMPY[source.dtype])
        at = g.let(f"({source.name} & {LAST}).to(tl.int32)", "i32", source.shape,
                   lambda env: (env.of(source) & most).astype(np.int32), shy=True)  # fmt: skip
    else:
        axes = tuple(int(a) for a in g.rng.permutation(len(shape))) if form == "axes" else None
        if form == "one" and len(shape) > 1:
            keep = int(g.rng.integers(len(shape)))
            shape = tuple(n if a == keep else 1 for a, n in enumerate(shape))
        at = g.offset(g.ramp(shape, axes), int(np.prod(shape)))
        kind = fn.NUMPY[at.dtype]
        if form == "moved":
            by = int(g.rng.integers(1, 200))
            at = g.let(f"{at.name} + {by}", at.dtype, shape, lambda env, at=at: env.of(at) + kind.type(by),
                       shy=True)  # fmt: skip
        elif form == "reversed":
            at = g.let(f"{LAST} - {at.name}", at.dtype, shape, lambda env, at=at: kind.type(LAST) - env.of(at),
                       shy=True)  # fmt: skip
        elif form == "strided":
            by = int(g.rng.integers(2, 6))
            at = g.let(f"{at.name} * {by}", at.dtype, shape, lambda env, at=at: env.of(at) * kind.type(by),
                       shy=True)  # fmt: skip
    mask = g.partner(at, "i1") if g.chance(0.5) else None
    if mask is None and g.chance(0.4) and at.shape != ():
        mask = g.let(f"{at.name} < n", "i1", at.shape, lambda env: env.of(at) < env["n"])
    if mask is None or at.shape == ():
        g.let(f"tl.load({name} + {at.name})", dtype, at.shape, lambda env: env.memory[name][env.of(at)].copy())
        return True
    text, other = ("0", np.asarray(False)) if dtype == "i1" else fn.literal(g, dtype)
    g.let(f"tl.load({name} + {at.name}, mask={mask.name}, other={text})", dtype, at.shape,
          lambda env: np.where(env.of(mask), env.memory[name][env.of(at)], other))  # fmt: skip
    return True


def walk(g) -> bool:
    """A loop that carries a pointer and a running value: the usual form of a long reduction."""
    if g.depth >= 2:
        return False
    dtype = g.pick(g.dtypes)
    name = g.buffer(dtype)
    shape = g.tile
    at = g.offset(g.ramp(shape), int(np.prod(shape)))
    total = g.let(f"tl.full({list(shape)}, 0, {fn.LANGUAGE[dtype]})", dtype, shape,
                  lambda env: np.zeros(shape, fn.NUMPY[dtype]))  # fmt: skip
    pointer, counter = g.fresh(), g.fresh()
    trips, step = int(g.rng.integers(1, 5)), int(g.rng.integers(1, 300))
    limit = f", mask={at.name} + {counter} * {step} < n, other=0" if g.chance(0.5) else ""
    g.emit(Statement(f"{pointer} = {name} + {at.name}", lambda env: env.__setitem__(pointer, env.of(at))))
    runtime = g.chance(0.4)

    def take(env: Env) -> None:
        where = env[pointer]
        value = env.memory[name][where]
        if limit:
            value = np.where(env.of(at) + env[counter] * step < env["n"], value, np.zeros_like(value))
        env[total.name] = fn.add(env.of(total), value)
        env[pointer] = where + where.dtype.type(step)

    loop = Loop(
        f"for {counter} in range({'m' if runtime else trips}):", counter, np.int64 if runtime else np.int32,
        lambda env: range(int(env["m"]) if runtime else trips),
    )  # fmt: skip
    loop.body.append(Statement(f"{total.name} = {total.name} + tl.load({pointer}{limit})\n{pointer} += {step}", take))
    g.emit(loop)
    return True


ATOMICS = {
    "add": np.add.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "and": np.bitwise_and.at,
    "or": np.bitwise_or.at,
    "xor": np.bitwise_xor.at,
}


def atomic(g) -> bool:
    """Integer atomics with colliding places: their order does not show."""
    value = g.find(("i32", "i64"), where=lambda v: v.shape != () and int(np.prod(v.shape)) <= 1024)
    if value is None or g.depth:
        return False
    where = g.find(("i32", "i64"), value.shape)
    if where is None:
        return False
    kind = g.pick(list(ATOMICS))
    name = g.buffer(value.dtype, 64, output=True)
    places = np.asarray(63, fn.NUMPY[where.dtype])
    mask = g.find(("i1",), value.shape) if g.chance(0.4) else None
    text = f", mask={mask.name}" if mask is not None else ""

    def act(env: Env) -> None:
        chosen = env.of(mask) if mask is not None else np.ones(value.shape, bool)
        ATOMICS[kind](env.memory[name], (env.of(where) & places)[chosen], env.of(value)[chosen])

    g.emit(Statement(f"tl.atomic_{kind}({name} + ({where.name} & 63), {value.name}{text})", act))
    g.used.update((value.name, where.name))
    return True


def histogram(g) -> bool:
    a = g.find(("i32",), where=lambda v: len(v.shape) == 1 and v.shape[0] >= 16)
    if a is None:
        return False
    bins = g.pick([16, 64])
    g.let(f"tl.histogram({a.name} & {bins - 1}, {bins})", "i32", (bins,),
          lambda env: np.bincount(env.of(a) & (bins - 1), minlength=bins).astype(np.int32))  # fmt: skip
    return True


MEMORY = {"load": (5, load), "walk": (1.5, walk), "atomic": (1, atomic), "histogram": (1, histogram)}
