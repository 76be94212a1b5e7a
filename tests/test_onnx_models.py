"""The two models of the demonstration against onnxruntime, and how a model is run again."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import nbxtensor as nbx
from nbxtensor.base.errors import ModelError
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel import launch
from nbxtensor.onnx import Model, load
from nbxtensor.onnx.zoo import files
from nbxtensor.program.digest import digest
from onnx_graphs import assert_close, graph, oracle

Array = np.ndarray[Any, Any]
node = helper.make_node


@cache
def model_of(name: str, device: str) -> Model:
    return load(files.model_file(name), device)


def magika_inputs(batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch)
    return {"bytes": rng.integers(0, 257, (batch, 2048)).astype(np.int32)}


def minilm_inputs(batch: int, length: int, masked: int) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    mask = np.ones((batch, length), np.int64)
    mask[-1, length - masked :] = 0
    return {
        "input_ids": rng.integers(0, 30522, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, (batch, length)),
    }


def compare(name: str, inputs: dict[str, Array], device: str) -> dict[str, Array]:
    got = {k: nbx.to_numpy(v) for k, v in model_of(name, device)(**inputs).items()}
    expected = oracle(files.model_file(name).read_bytes(), inputs)
    for output, array in expected.items():
        assert_close(got[output], array)
    return got


@pytest.mark.parametrize("batch", [1, 2])
def test_magika(batch: int, device: str) -> None:
    compare(files.MAGIKA, magika_inputs(batch), device)


@pytest.mark.parametrize(("batch", "length", "masked"), [(1, 1, 0), (1, 7, 0), (1, 128, 20), (2, 16, 9), (2, 33, 0)])
def test_minilm(batch: int, length: int, masked: int, device: str) -> None:
    compare(files.MINILM, minilm_inputs(batch, length, masked), device)


def test_a_row_has_the_same_bits_in_every_batch(device: str) -> None:
    both = minilm_inputs(2, 16, 0)
    alone = {k: v[:1] for k, v in both.items()}
    model = model_of(files.MINILM, device)
    rows = nbx.to_numpy(model(**both)["last_hidden_state"])
    row = nbx.to_numpy(model(**alone)["last_hidden_state"])
    assert digest(rows[:1].copy()) == digest(row)


def test_a_second_run_gives_the_same_bits_and_does_no_folding(device: str) -> None:
    model = model_of(files.MINILM, device)
    inputs = minilm_inputs(1, 7, 2)
    first = digest(nbx.to_numpy(model(**inputs)["last_hidden_state"]))
    assert digest(nbx.to_numpy(model(**inputs)["last_hidden_state"])) == first


def test_what_minilm_becomes() -> None:
    """Int8 weights are widened once; shapes, masks and positions are known before anything runs."""
    model = load(files.model_file(files.MINILM))
    traced = model.specialize({p.name: (2, 16) for p in model.inputs}).traced
    live = [c.op for c in traced.program.calls]
    assert len(live) < 290
    assert live.count("matmul") == 48
    assert live.count("astype") == 1
    assert {c.op for c in traced.folds.calls} >= {"astype", "multiply"}
    weights = [v for v in traced.folded.values() if v.size > 10_000]
    assert len(weights) == 37  # the 38th, of positions, is cut to the length of the sequence
    assert all(v.shared and v.dtype is nbx.float32 for v in weights)


def test_a_run_compiles_nothing_that_was_not_foreseen(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((2, 53, 6), np.float32)
    nodes = [
        node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "s"], ["m"]),
        node("MatMul", ["x", "m"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
        node("Add", ["t", "t"], ["d"]),
        node("Softmax", ["d"], ["y"], axis=-1),
        node("ReduceMean", ["y"], ["z"], axes=[1]),
    ]
    constants = {"w": np.ones((6, 4), np.int8), "s": np.full(4, 0.5, np.float32)}
    data = graph(nodes, {"x": x}, ["y", "z"], constants=constants).SerializeToString()
    foreseen = {job.key for job in load(data, device).specialize({"x": x.shape}).jobs}
    asked: set[str] = set()

    def note(job: Job) -> Any:
        asked.add(job.key)
        return compile_job(job)

    monkeypatch.setattr(launch, "compile_job", note)
    load(data, device)(x=x)
    assert asked
    assert asked <= foreseen


def test_shapes_and_kernels_are_known_without_running() -> None:
    model = load(files.model_file(files.MINILM))
    made = model.specialize({p.name: (3, 5) for p in model.inputs}, NullDevice())
    assert made.jobs
    again = model.specialize({p.name: (3, 5) for p in model.inputs}, NullDevice())
    assert {j.key for j in made.jobs} == {j.key for j in again.jobs}


def test_the_null_device_runs_a_model_without_values() -> None:
    null = NullDevice()
    outputs = load(files.model_file(files.MAGIKA), null)(**magika_inputs(2))
    assert outputs["target_label"].shape == (2, 214)
    assert null.calls


def test_constants_are_shared_by_all_shapes(device: str) -> None:
    data = graph(
        [node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), node("MatMul", ["x", "f"], ["y"])],
        {"x": np.zeros((2, 3), np.float32)},
        ["y"],
        constants={"w": np.arange(12, dtype=np.int8).reshape(3, 4) * np.ones((1, 1), np.int8)},
    ).SerializeToString()
    model = load(data, device)
    for rows in (1, 2, 5):
        x = np.full((rows, 3), 0.5, np.float32)
        assert_close(nbx.to_numpy(model(x=x)["y"]), x @ np.arange(12, dtype=np.float32).reshape(3, 4))


def test_an_input_may_decide_a_shape(device: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    inputs = {"x": x, "s": np.array([2, 6])}
    model = load(graph([node("Reshape", ["x", "s"], ["y"])], inputs, ["y"]).SerializeToString(), device)
    for shape in ((2, 6), (12,), (4, -1), (2, 6)):
        got = nbx.to_numpy(model(x=x, s=np.array(shape))["y"])
        np.testing.assert_array_equal(got, x.reshape(shape))
    with pytest.raises(ModelError, match="cannot make"):
        model(x=x, s=np.array([5]))
    np.testing.assert_array_equal(nbx.to_numpy(model(x=x, s=np.array([12]))["y"]), x.reshape(12))


def test_outputs_that_are_inputs_or_constants_are_copies(device: str) -> None:
    x = np.arange(4, dtype=np.float32)
    data = graph(
        [node("Identity", ["x"], ["y"]), node("Identity", ["c"], ["z"]), node("Identity", ["x"], ["w"])],
        {"x": x},
        ["y", "z", "w"],
        constants={"c": np.ones(3, np.float32)},
    )
    model = load(data.SerializeToString(), device)
    outputs = model(x=x)
    outputs["z"][...] = 7.0
    outputs["y"][...] = 7.0
    np.testing.assert_array_equal(x, np.arange(4))
    np.testing.assert_array_equal(nbx.to_numpy(outputs["w"]), np.arange(4))
    np.testing.assert_array_equal(nbx.to_numpy(model(x=x)["z"]), np.ones(3))


def test_tensors_and_arrays_are_taken(device: str) -> None:
    x = np.arange(4, dtype=np.float32)
    model = load(graph([node("Abs", ["x"], ["y"])], {"x": x}, ["y"]).SerializeToString(), device)
    unaligned = np.frombuffer(b"-" + x.tobytes(), np.uint8)[1:].view(np.float32)
    for given in (x, nbx.from_numpy(x, device), [0.0, 1.0, 2.0, 3.0], x[::-1].copy()[::-1], unaligned):
        outputs = model(x=given)
        assert outputs["y"].device.name.startswith(device)
        np.testing.assert_array_equal(nbx.to_numpy(outputs["y"]), x)


def test_many_threads_at_once(device: str) -> None:
    x = np.ones((1, 3), np.float32)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["b"]), node("Add", ["b", "b"], ["y"])]
    weight = np.eye(3, dtype=np.float32)
    model = load(graph(nodes, {"x": x}, ["y"], constants={"w": weight}).SerializeToString(), device)

    def work(i: int) -> bool:
        given = np.full((i % 5 + 1, 3), i / 10, np.float32)
        got = nbx.to_numpy(model(x=given)["y"])
        return got.shape == given.shape and bool(np.allclose(got, 2 * np.tanh(given), atol=1e-6))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(80)))


def test_empty_inputs(device: str) -> None:
    x = np.zeros((0, 3), np.float32)
    model = load(graph([node("Add", ["x", "x"], ["y"])], {"x": x}, ["y"]).SerializeToString(), device)
    assert model(x=x)["y"].shape == (0, 3)
