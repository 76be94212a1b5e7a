"""Programs: lifetimes, tracing, folding, sharing, running."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ModelError
from nbxtensor.device.null import NullDevice
from nbxtensor.program import Call, Program, Runner, Slot, Tracer
from nbxtensor.program.digest import digest
from nbxtensor.program.host import INTEGER_LIMIT, evaluate
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.names import function

Array = np.ndarray[Any, Any]


def tracer() -> Tracer:
    null = NullDevice()
    return Tracer(null, null.calls)


def call(op: str, operands: tuple[int, ...], result: int) -> Call:
    return Call(op, tuple(map(Slot, operands)), (), (result,))


CHAIN = Program((0, 1), (call("add", (0, 1), 2), call("exp", (2,), 3), call("multiply", (2, 3), 4)), (4,), 5)


def test_a_value_is_dropped_after_its_last_use() -> None:
    assert CHAIN.drops() == ((0, 1), (), (2, 3))


def test_a_result_that_nothing_reads_is_dropped_at_once() -> None:
    program = Program((0,), (Call("topk", (Slot(0), 1), (), (1, 2)), call("exp", (1,), 3)), (3,), 4)
    assert program.drops() == ((0, 2), (1,))


def test_pruning_keeps_what_the_outputs_need_and_all_inputs() -> None:
    program = Program((0, 1), (call("exp", (0,), 2), call("exp", (1,), 3), call("abs", (2,), 4)), (4,), 5)
    pruned = program.pruned()
    assert [c.results for c in pruned.calls] == [(2,), (4,)]
    assert pruned.inputs == (0, 1)
    assert program.only((3,)).inputs == (1,)


def test_a_program_reads_as_text() -> None:
    text = str(CHAIN)
    assert "%2 = add(%0, %1)  # drop %0, %1" in text
    assert text.endswith("outputs %4")


def test_literals_and_packs_in_text() -> None:
    shown = str(Call("concat", ((Slot(0), Slot(1)),), (("axis", 1),), (2,)))
    assert shown == "%2 = concat((%0, %1), axis=1)"
    assert str(Call("astype", (Slot(0), dtypes.float32), (), (1,))) == "%1 = astype(%0, float32)"


def test_values_die_while_a_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    counts: list[int] = []

    class Thing:
        pass

    def step(*_: Any) -> Any:
        gc.collect()
        counts.append(sum(r() is not None for r in alive))
        made = Thing()
        alive.append(weakref.ref(made))
        return made

    for op in ("add", "exp", "multiply"):
        monkeypatch.setitem(table, op, step)
    Runner(CHAIN, {}).run([Thing(), Thing()])  # pyright: ignore[reportArgumentType]
    assert counts == [0, 1, 2]


def test_an_operator_that_refuses_is_told_with_its_source(device: str) -> None:
    program = Program((0, 1), (Call("add", (Slot(0), Slot(1)), (), (2,), "Add node 'a'"),), (2,), 3)
    x, y = (nbx.from_numpy(np.zeros(n, np.float32), device) for n in (3, 4))
    with pytest.raises(ModelError, match="Add node 'a': nbx.add"):
        Runner(program, {}).run([x, y])


def test_equal_calls_are_made_once() -> None:
    t = tracer()
    x = t.input("x", (3,), dtypes.float32)
    a, b = t.call("exp", x), t.call("exp", x)
    assert a is b
    assert t.call("multiply", a, 2.0) is t.call("multiply", b, 2.0)
    assert t.call("multiply", a, 0.0) is not t.call("multiply", a, -0.0)
    assert t.call("multiply", a, 1.0) is not t.call("multiply", a, 1)


def test_known_scalars_become_python_scalars() -> None:
    t = tracer()
    x = t.input("x", (2, 3), dtypes.float32)
    y = t.call("multiply", x, t.constant(np.full((1, 1), 0.5, np.float32)))
    (made,) = t.finish([y]).program.calls
    assert str(made) == "%1 = multiply(%0, 0.5)"


def test_a_scalar_of_higher_rank_or_other_dtype_stays_a_tensor() -> None:
    t = tracer()
    x = t.input("x", (3,), dtypes.float32)
    y = t.call("multiply", x, t.constant(np.full((1, 1), 0.5, np.float32)))
    z = t.call("multiply", x, t.constant(np.full((), 0.5, np.float64)))
    assert y.shape == (1, 3)
    assert z.dtype is dtypes.float64


def test_constants_are_folded_apart_from_the_inputs() -> None:
    t = tracer()
    x = t.input("x", (4, 3), dtypes.float32)
    weight = t.constant(np.ones((70, 1000), np.int8), "weight")
    wide = t.call("astype", weight, dtypes.float32)
    scaled = t.call("multiply", wide, t.constant(np.ones(1000, np.float32), "scale"))
    part = t.call("slice_view", scaled, ((0, 3, 1), (0, 5, 1)))
    traced = t.finish([t.call("matmul", x, part)])
    assert [c.op for c in traced.program.calls] == ["matmul"]
    assert [c.op for c in traced.folds.calls] == ["astype", "multiply", "slice_view"]
    assert all(v.shared for v in traced.folded.values())


def test_outputs_share_no_memory_with_inputs_and_constants(device: str) -> None:
    t = tracer()
    x = t.input("x", (4, 3), dtypes.float32)
    known = t.constant(np.arange(3.0, dtype=np.float32))
    traced = t.finish([x, t.call("permute_dims", x, (1, 0)), known])
    assert [c.op for c in traced.program.calls if c.op == "copy"] == ["copy"] * 3
    constants = {s: nbx.from_numpy(v.array, device) for s, v in traced.arrays.items() if v.array is not None}
    given = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    outputs = [nbx.to_numpy(o) for o in Runner(traced.program, constants).run([nbx.from_numpy(given, device)])]
    np.testing.assert_array_equal(outputs[0], given)
    np.testing.assert_array_equal(outputs[1], given.T)
    assert not np.shares_memory(outputs[0], given)


def test_a_view_is_right_for_operands_of_other_layouts(device: str) -> None:
    t = tracer()
    x = t.input("x", (4, 6), dtypes.float32)
    views = [
        t.call("reshape", x, (2, 12)),
        t.call("permute_dims", x, (1, 0)),
        t.call("broadcast_to", x, (2, 4, 6)),
        t.call("slice_view", x, ((3, None, -2), (1, 5, 2))),
    ]
    traced = t.finish([t.call("negative", v) for v in views])
    assert [c.op for c in traced.program.calls if c.view is not None] == [
        "reshape",
        "permute_dims",
        "broadcast_to",
        "slice_view",
    ]
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for given in (array, np.asfortranarray(array), np.arange(96, dtype=np.float32).reshape(8, 12)[1::2, ::-2]):
        outputs = Runner(traced.program, {}).run([nbx.from_numpy(given, device)])
        wanted = [given.reshape(2, 12), given.T, np.broadcast_to(given, (2, 4, 6)), given[3::-2, 1:5:2]]
        for got, expected in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(nbx.to_numpy(got), -expected)


def test_small_integers_are_computed_on_the_host() -> None:
    t = tracer()
    a = t.call("add", t.constant(np.array([2, 3])), t.constant(np.array(5)))
    assert a.array is not None
    assert a.array.tolist() == [7, 8]
    assert a.slot == -1


def test_large_values_are_left_to_the_device() -> None:
    t = tracer()
    column, row = (t.constant(np.arange(300).reshape(s)) for s in ((300, 1), (1, 300)))
    assert t.call("add", column, row).array is None
    assert evaluate("broadcast_to", [np.zeros(1, np.int64), (INTEGER_LIMIT + 1,)], {}) is None
    assert evaluate("take", [np.zeros((2, 60000), np.int64), np.zeros(60000, np.int64)], {"axis": 0}) is None


INTEGERS = np.array([-7, -1, 0, 1, 6, 2**40, -(2**62)], np.int64)
DIVISORS = np.array([3, -2, 5, -1, 4, 7, 2**33], np.int64)
FLOATS = np.array([0.1, -2.5, 3e38, -0.0, 1e-40, 7.0], np.float32)
TWINS: list[tuple[str, list[Any], dict[str, Any]]] = [
    *((op, [INTEGERS, DIVISORS], {}) for op in ("add", "subtract", "multiply", "floor_divide", "remainder")),
    *((op, [INTEGERS, DIVISORS], {}) for op in ("minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")),
    *((op, [INTEGERS, DIVISORS], {}) for op in ("equal", "not_equal", "less", "less_equal", "greater")),
    *((op, [INTEGERS], {}) for op in ("abs", "negative", "sign", "bitwise_invert")),
    *((op, [FLOATS, FLOATS[::-1].copy()], {}) for op in ("add", "subtract", "multiply", "divide", "less")),
    *((op, [FLOATS], {}) for op in ("floor", "ceil", "sqrt")),
    *((op, [INTEGERS > 0, DIVISORS > 0], {}) for op in ("logical_and", "logical_or", "logical_xor")),
    ("logical_not", [INTEGERS > 0], {}),
    ("where", [INTEGERS > 0, INTEGERS, DIVISORS], {}),
    ("concat", [[INTEGERS, DIVISORS]], {"axis": 0}),
    ("take", [INTEGERS, np.array([3, 0, 6])], {"axis": 0}),
    ("slice_view", [INTEGERS, ((5, 1, -2),)], {}),
    ("reshape", [INTEGERS[:6].copy(), (2, 3)], {}),
    ("permute_dims", [INTEGERS[:6].reshape(2, 3), (1, 0)], {}),
    ("broadcast_to", [INTEGERS, (2, 7)], {}),
    *(("astype", [INTEGERS, d], {}) for d in (dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool_)),
    *(("astype", [FLOATS, d], {}) for d in (dtypes.float64, dtypes.float16, dtypes.bool_)),
    *((op, [INTEGERS[:5].copy()], {"axis": (0,), "keepdims": False}) for op in ("sum", "prod", "max", "min")),
]


@pytest.mark.parametrize(("op", "operands", "attributes"), TWINS, ids=lambda v: v if isinstance(v, str) else "")
def test_the_hosts_twin_gives_the_operators_bits(op: str, operands: Any, attributes: Any, device: str) -> None:
    known = evaluate(op, operands, attributes)
    assert known is not None

    def tensor(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return nbx.from_numpy(value, device)  # pyright: ignore[reportUnknownArgumentType]
        return [tensor(v) for v in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]

    result = nbx.to_numpy(function(op)(*map(tensor, operands), **attributes))
    assert result.dtype == known.dtype
    assert digest(result) == digest(known)


def test_digest_counts_nans_as_one_and_zeros_as_two() -> None:
    nans = np.array([np.nan, -np.nan], np.float32)
    assert digest(nans) == digest(nans[::-1].copy())
    assert digest(np.array([0.0])) != digest(np.array([-0.0]))
    assert digest(np.zeros((2, 3))) != digest(np.zeros((3, 2)))
    assert digest(np.zeros(2, np.int32)) != digest(np.zeros(2, np.float32))
