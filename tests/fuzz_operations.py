"""The operations that the fuzzer draws from: each writes an expression and gives its meaning in NumPy."""

import numpy as np

import fuzz_numeric as fn
from fuzz_memory import MEMORY
from fuzz_numeric import BITS, FLOATS, INTS, LANGUAGE, literal
from fuzz_program import Env, Var
from fuzz_shapes import SHAPES

MATH = ("fp32", "fp64")


def size(var: Var) -> int:
    return int(np.prod(var.shape, dtype=int))


def _binary(g, dtypes, table, literals: bool = True) -> bool:
    a = g.find(dtypes)
    if a is None:
        return False
    symbol, operation = g.pick(table)
    b = g.partner(a)
    if literals and g.chance(0.2) and a.shape != () and a.dtype != "i1":
        text, value = literal(g, a.dtype)
        if g.chance(0.5):
            g.let(symbol.format(a.name, text), a.dtype, a.shape, lambda env: operation(env.of(a), value))
        else:
            g.let(symbol.format(text, a.name), a.dtype, a.shape, lambda env: operation(value, env.of(a)))
        return True
    if b is None:
        return False
    g.let(symbol.format(a.name, b.name), a.dtype, a.shape, lambda env: operation(env.of(a), env.of(b)))
    return True


def arithmetic(g) -> bool:
    return _binary(g, (*INTS, *FLOATS), [("{} + {}", fn.add), ("{} - {}", fn.subtract), ("{} * {}", fn.multiply)])


def logic(g) -> bool:
    table = [("{} & {}", np.bitwise_and), ("{} | {}", np.bitwise_or), ("{} ^ {}", np.bitwise_xor)]
    return _binary(g, (*INTS, "i1"), table)


def extreme(g) -> bool:
    table = [("tl.maximum({}, {})", lambda a, b: fn.number_extreme(True, a, b)),
             ("tl.minimum({}, {})", lambda a, b: fn.number_extreme(False, a, b))]  # fmt: skip
    if g.chance(0.4):
        rule = ", propagate_nan=tl.PropagateNan.ALL"
        table = [("tl.maximum({}, {}" + rule + ")", lambda a, b: fn.nan_extreme(True, a, b)),
                 ("tl.minimum({}, {}" + rule + ")", lambda a, b: fn.nan_extreme(False, a, b))]  # fmt: skip
        return _binary(g, (*MATH, "fp16"), table, literals=False)
    return _binary(g, (*INTS, *MATH, "fp16"), table, literals=False)


def division(g) -> bool:
    a = g.find((*INTS, *MATH))
    b = g.partner(a) if a is not None else None
    if a is None or b is None:
        return False
    if a.dtype == "fp32":
        g.let(f"tl.div_rn({a.name}, {b.name})", a.dtype, a.shape, lambda env: fn.divide(env.of(a), env.of(b)))
    elif a.dtype == "fp64":
        g.let(f"{a.name} / {b.name}", a.dtype, a.shape, lambda env: fn.divide(env.of(a), env.of(b)))
    else:
        symbol, operation = g.pick([("//", fn.quotient), ("%", fn.remainder)])
        if g.chance(0.5):
            g.let(
                f"{a.name} {symbol} (({b.name} & 7) + 1)", a.dtype, a.shape,
                lambda env: operation(env.of(a), (env.of(b) & 7) + np.asarray(1, fn.NUMPY[a.dtype])),
            )  # fmt: skip
        else:  # halved: the lowest integer over -1 does not fit
            g.let(
                f"({a.name} >> 1) {symbol} ({b.name} | 1)", a.dtype, a.shape,
                lambda env: operation(env.of(a) >> 1, env.of(b) | 1),
            )  # fmt: skip
    return True


def shift(g) -> bool:
    a = g.find(INTS)
    b = g.partner(a) if a is not None else None
    if a is None or b is None:
        return False
    symbol, operation = g.pick([("<<", np.left_shift), (">>", np.right_shift)])
    most = np.asarray(BITS[a.dtype] - 1, fn.NUMPY[a.dtype])
    g.let(
        f"{a.name} {symbol} ({b.name} & {BITS[a.dtype] - 1})", a.dtype, a.shape,
        lambda env: operation(env.of(a), env.of(b) & most),
    )  # fmt: skip
    return True


def unary(g) -> bool:
    a = g.find()
    if a is None:
        return False
    if a.dtype == "i1":
        g.let(f"~{a.name}" if a.shape else f"not {a.name}", "i1", a.shape, lambda env: ~env.of(a))
    elif a.dtype in INTS:
        symbol, operation = g.pick([("-", np.negative), ("~", np.invert)])
        g.let(f"{symbol}{a.name}", a.dtype, a.shape, lambda env: operation(env.of(a)))
    elif a.dtype in MATH:
        text, operation = g.pick([("tl.abs", np.abs), ("tl.floor", np.floor), ("tl.ceil", np.ceil), ("root", None)])
        if operation is not None:
            g.let(f"{text}({a.name})", a.dtype, a.shape, lambda env: operation(env.of(a)))
        elif a.dtype == "fp32":
            g.let(f"tl.sqrt_rn({a.name})", a.dtype, a.shape, lambda env: fn.square_root(env.of(a)))
        else:
            return False
    else:
        return False
    return True


def fused(g) -> bool:
    a = g.find(MATH, where=lambda v: v.dtype == "fp32" or size(v) <= 256)
    if a is None:
        return False
    b, c = g.partner(a), g.partner(a)
    if b is None or c is None or b.shape != a.shape or c.shape != a.shape:
        b = c = a
    g.let(f"tl.fma({a.name}, {b.name}, {c.name})", a.dtype, a.shape,
          lambda env: fn.fma(env.of(a), env.of(b), env.of(c)))  # fmt: skip
    return True


def compare(g) -> bool:
    a = g.find((*INTS, *FLOATS))
    b = g.partner(a) if a is not None else None
    if a is None or b is None:
        return False
    symbol, operation = g.pick(
        [("<", np.less), ("<=", np.less_equal), (">", np.greater), (">=", np.greater_equal), ("==", np.equal),
         ("!=", np.not_equal)]
    )  # fmt: skip
    g.let(f"{a.name} {symbol} {b.name}", "i1", a.shape,
          lambda env: operation(fn.wide(env.of(a)), fn.wide(env.of(b))))  # fmt: skip
    return True


def where(g) -> bool:
    a = g.find()
    if a is None:
        return False
    b, c = g.partner(a), g.partner(a, "i1")
    if b is None or c is None or c == a:
        return False
    g.let(f"tl.where({c.name}, {a.name}, {b.name})", a.dtype, a.shape,
          lambda env: np.where(env.of(c), env.of(a), env.of(b)))  # fmt: skip
    return True


def _casts(dtype: str) -> tuple[str, ...]:
    if dtype in INTS or dtype == "i1":
        return (*(t for t in INTS if t != dtype), "fp32", "fp64", "i1")
    return {"fp16": ("fp32",), "bf16": ("fp32",), "fp32": ("fp16", "bf16", "fp64"), "fp64": ("fp32", "fp16")}[dtype]


def cast(g) -> bool:
    a = g.find()
    if a is None:
        return False
    choices = [t for t in _casts(a.dtype) if t != a.dtype]
    usual = [t for t in choices if t in g.dtypes]
    to = g.pick(usual if usual and g.chance(0.7) else choices)
    g.let(f"{a.name}.to({LANGUAGE[to]})", to, a.shape, lambda env: fn.cast(env.of(a), to))
    return True


def to_integer(g) -> bool:
    a = g.find(MATH)
    if a is None:
        return False
    to = g.pick(INTS)
    limit = min(2.0 ** (BITS[to] - 1) - 1, 2.0**30)
    inner = f"tl.abs({a.name})" if to[0] == "u" else a.name
    fit = np.asarray(limit, fn.NUMPY[a.dtype])

    def value(env: Env) -> np.ndarray:
        x = env.of(a)
        x = np.where(np.abs(x) < fit, np.abs(x) if to[0] == "u" else x, np.zeros_like(x))
        return np.trunc(x).astype(fn.NUMPY[to])

    g.let(f"tl.where(tl.abs({a.name}) < {limit!r}, {inner}, 0.0).to({LANGUAGE[to]})", to, a.shape, value)
    return True


def bitcast(g) -> bool:
    pairs = {"i32": "fp32", "u32": "fp32", "i64": "fp64", "u64": "fp64", "i16": "bf16", "u16": "fp16"}
    a = g.find((*pairs, "fp32", "fp64", "fp16"))
    if a is None:
        return False
    if a.dtype in pairs:
        to = pairs[a.dtype]
        g.let(f"{a.name}.to({LANGUAGE[to]}, bitcast=True)", to, a.shape, lambda env: fn.bitcast(env.of(a), to))
        return True
    to = {"fp32": "i32", "fp64": "i64", "fp16": "i16"}[a.dtype]

    def value(env: Env) -> np.ndarray:  # the sign and payload of a NaN are not promised
        x = env.of(a)
        return fn.bitcast(np.where(np.isnan(x), np.zeros_like(x), x), to)

    text = f"tl.where({a.name} == {a.name}, {a.name}, 0.0).to({LANGUAGE[to]}, bitcast=True)"
    g.let(text, to, a.shape, value)
    return True


def constant(g) -> bool:
    dtype = g.pick(g.dtypes)
    text, value = literal(g, dtype)
    shape = g.pick([g.tile, ()])
    g.let(f"tl.full({list(shape)}, {text}, {LANGUAGE[dtype]})", dtype, shape, lambda env: np.full(shape, value))
    return True


def scalar_argument(g) -> bool:
    name, dtype = g.pick([("n", "i64"), ("m", "i64"), ("s", "fp32")])
    g.let(f"{name} + 0" if dtype == "i64" else f"{name} * 1.0", dtype, (), lambda env: env[name])
    return True


def dot(g) -> bool:
    tiles = [g.find(("fp32",), where=lambda v: size(v) == 256 and v.shape != ()) for _ in range(3)]
    if any(t is None for t in tiles):
        return False
    a, b, c = (g.let(f"tl.reshape({t.name}, (16, 16))", "fp32", (16, 16),
                     lambda env, t=t: env.of(t).reshape(16, 16)) for t in tiles)  # fmt: skip
    g.let(f'tl.dot({a.name}, {b.name}, {c.name}, input_precision="ieee")', "fp32", (16, 16),
          lambda env: fn.dot(env.of(a), env.of(b), env.of(c)))  # fmt: skip
    return True


OPERATIONS = {
    "arithmetic": (12, arithmetic), "logic": (4, logic), "extreme": (4, extreme), "division": (4, division),
    "shift": (3, shift), "unary": (4, unary), "fused": (4, fused), "compare": (5, compare), "where": (5, where),
    "cast": (6, cast), "to_integer": (2, to_integer), "bitcast": (2, bitcast), "constant": (2, constant),
    "scalar_argument": (1, scalar_argument), "dot": (3, dot), **SHAPES, **MEMORY,
}  # fmt: skip
"""Name -> (weight, function); a function that finds no operands returns False."""
