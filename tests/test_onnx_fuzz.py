"""Damaged copies of the two models: each loads and can be traced, or is refused in one line."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from nbxtensor.base.errors import NbxError
from nbxtensor.onnx import load
from nbxtensor.onnx.zoo import files


def small(path: Path) -> bytes:
    """A model with its large constants cut down to one element: the part of the file that has a structure."""
    model = ModelProto.FromString(path.read_bytes())
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 256:
            tensor.raw_data = tensor.raw_data[: np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize]
            del tensor.dims[:]
    return model.SerializeToString()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(changed)))
        match int(rng.integers(4)):
            case 0:
                changed[at] ^= 1 << int(rng.integers(8))
            case 1:
                changed[at] = int(rng.integers(256))
            case 2:
                del changed[at : at + int(rng.integers(1, 40))]
            case _:
                changed[at:at] = rng.integers(0, 256, int(rng.integers(1, 20)), np.uint8).tobytes()
    return bytes(changed)


def structurally_mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A file that is well-formed, with wrong numbers, names and types in it."""
    model = ModelProto.FromString(data)
    nodes, names = model.graph.node, [o for n in model.graph.node for o in n.output]
    odd = (-(2**63), -7, -1, 0, 1, 2, 3, 77, 2**31, 2**62)
    for _ in range(int(rng.integers(1, 4))):
        chosen = nodes[int(rng.integers(len(nodes)))]
        number = odd[int(rng.integers(len(odd)))]
        tensor = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
        match int(rng.integers(7)):
            case 0:
                chosen.op_type = nodes[int(rng.integers(len(nodes)))].op_type
            case 1:
                chosen.input[int(rng.integers(len(chosen.input)))] = names[int(rng.integers(len(names)))]
            case 2 if chosen.attribute:
                chosen.attribute[0].i = number
            case 3 if chosen.attribute and chosen.attribute[0].ints:
                chosen.attribute[0].ints[0] = number
            case 4 if tensor.data_type == TensorProto.INT64:
                tensor.raw_data = np.full(len(tensor.raw_data) // 8, number, np.int64).tobytes()
            case 5 if tensor.dims:
                tensor.dims[0] = number
            case _:
                del chosen.input[-1:]
    return model.SerializeToString()


def outcome(data: bytes) -> str:
    try:
        model = load(data)
        shapes = {p.name: tuple(d if isinstance(d, int) else 2 for d in p.shape or ()) for p in model.inputs}
        model.specialize(shapes)
    except NbxError as error:
        return type(error).__name__ if "\n" not in str(error) else "more than one line"
    return "fine"


@pytest.mark.parametrize("name", [files.MAGIKA, files.MINILM])
def test_mutated_models_load_or_are_refused(name: str) -> None:
    data = small(files.model_file(name))
    rng = np.random.default_rng(3)
    outcomes = [outcome(mutated(data, rng)) for _ in range(500)]
    assert set(outcomes) <= {"fine", "ModelError", "ArgumentError", "ShapeError"}
    assert outcomes.count("ModelError") > 100


def test_models_with_wrong_numbers_run_or_are_refused() -> None:
    data = files.model_file(files.MAGIKA).read_bytes()
    rng = np.random.default_rng(5)
    outcomes = [outcome(structurally_mutated(data, rng)) for _ in range(60)]
    assert set(outcomes) <= {"fine", "ModelError", "ArgumentError", "ShapeError"}
    assert outcomes.count("ModelError") > 10


def test_a_mutated_whole_model_that_still_runs_gives_no_crash(device: str) -> None:
    data = files.model_file(files.MAGIKA).read_bytes()
    rng = np.random.default_rng(4)
    for _ in range(10):
        flipped = bytearray(data)
        flipped[int(rng.integers(len(data) // 2))] ^= 1 << int(rng.integers(8))
        try:
            load(bytes(flipped), device)
        except NbxError:
            continue
