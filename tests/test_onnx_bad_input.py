"""Damaged, hostile and unsupported models: one clear line each, whatever is in the file."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import nbxtensor as nbx
from nbxtensor.base.errors import ArgumentError, DeviceError, DTypeError, ModelError, NbxError, ShapeError
from nbxtensor.device.null import NullDevice
from nbxtensor.onnx import load
from nbxtensor.onnx.check import check
from nbxtensor.onnx.parse import read
from onnx_graphs import graph

X = {"x": np.zeros((2, 3), np.float32)}


def relu(**changes: Any) -> ModelProto:
    return graph([helper.make_node("Abs", ["x"], ["y"], name="a")], X, ["y"], **changes)


def changed(change: Callable[[ModelProto], Any]) -> bytes:
    model = relu(constants={"c": np.arange(6, dtype=np.float32).reshape(2, 3)})
    change(model)
    return model.SerializeToString()


def of_nodes(*nodes: Any, constants: dict[str, Any] | None = None, opset: int = 17) -> bytes:
    return graph(nodes, X, ["y"], constants=constants, opset=opset).SerializeToString()


def dims(*sizes: int) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(sizes)

    return change


def external(location: str, **facts: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **facts}.items():
            tensor.external_data.add(key=key, value=value)

    return change


def no_output(model: ModelProto) -> None:
    del model.graph.output[:]


def typed_values(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * 5)


def out_of_range(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_type = TensorProto.INT8
    tensor.int32_data.extend([1, 2, 3, 4, 5, 300])


node = helper.make_node
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not an ONNX file"),
    "garbage": (b"\x00\xff" * 500, "not an ONNX file"),
    "text": (b"hello, this is no model", "not an ONNX file"),
    "truncated": (relu().SerializeToString()[:-7], "not an ONNX file"),
    "nested": (b"\x3a\x7f" * 5000, "not an ONNX file"),
    "no output": (changed(no_output), "not an ONNX file"),
    "opset 6": (relu(opset=6).SerializeToString(), "got opset 6; allowed: opset 7 to 21"),
    "opset 999": (relu(opset=999).SerializeToString(), "got opset 999"),
    "no opset": (changed(lambda m: m.ClearField("opset_import")), "must state the version"),
    "two opsets": (changed(lambda m: m.opset_import.add(domain="", version=9)), "must state the version"),
    "negative size": (changed(dims(-2, 3)), "impossible dimensions"),
    "huge size": (changed(dims(2**40, 2**40)), "needs .* bytes"),
    "overflowing size": (changed(dims(2**62, 4)), "needs .* bytes"),
    "many dimensions": (changed(dims(*[1] * 70)), "impossible dimensions"),
    "too few bytes": (changed(dims(2, 4)), "needs 32 bytes; got 24 bytes"),
    "too few values": (changed(typed_values), "needs 6 values; got 5 values"),
    "value out of range": (changed(out_of_range), "outside the range of int8"),
    "string constant": (changed(lambda m: setattr(m.graph.initializer[0], "data_type", 8)), "got string"),
    "unknown type": (changed(lambda m: setattr(m.graph.initializer[0], "data_type", 99)), "got type code 99"),
    "nameless constant": (changed(lambda m: setattr(m.graph.initializer[0], "name", "")), "has none"),
    "twin constants": (changed(lambda m: m.graph.initializer.append(m.graph.initializer[0])), "one name"),
    "twin inputs": (changed(lambda m: m.graph.input.append(m.graph.input[0])), "two inputs have one name"),
    "twin outputs": (changed(lambda m: m.graph.output.append(m.graph.output[0])), "two outputs have one name"),
    "absent output": (changed(lambda m: setattr(m.graph.output[0], "name", "z")), "output 'z' is made by nothing"),
    "negative dim": (
        changed(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -7)),
        "impossible dimension; got -7",
    ),
    "sequence input": (
        changed(lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.SetInParent()),
        "not a tensor",
    ),
    "external absolute": (changed(external("/etc/passwd")), "another file"),
    "cycle": (of_nodes(node("Abs", ["z"], ["y"]), node("Abs", ["y"], ["z"])), "cycle"),
    "itself": (of_nodes(node("Add", ["x", "y"], ["y"])), "cycle"),
    "missing value": (of_nodes(node("Add", ["x", "nowhere"], ["y"])), "reads 'nowhere', which nothing makes"),
    "made twice": (of_nodes(node("Abs", ["x"], ["y"]), node("Neg", ["x"], ["y"])), "made before"),
    "input made": (of_nodes(node("Abs", ["x"], ["x"]), node("Abs", ["x"], ["y"])), "made before"),
    "unknown operator": (of_nodes(node("Frobnicate", ["x"], ["y"])), "Frobnicate is not supported"),
    "unknown domain": (of_nodes(node("Abs", ["x"], ["y"], domain="evil")), "domain 'evil'"),
    "too new operator": (of_nodes(node("Gelu", ["x"], ["y"]), opset=13), "Gelu is not supported in opset 13"),
    "too many inputs": (of_nodes(node("Abs", ["x", "x"], ["y"])), r"2 inputs \(allowed: 1\)"),
    "too few inputs": (of_nodes(node("Max", [], ["y"])), r"0 inputs \(allowed: at least 1\)"),
    "too many outputs": (of_nodes(node("Abs", ["x"], ["y", "z"])), r"2 outputs \(allowed: 1\)"),
    "unknown attribute": (of_nodes(node("Abs", ["x"], ["y"], speed=3)), "there is no attribute speed"),
    "wrong attribute": (of_nodes(node("Softmax", ["x"], ["y"], axis=1.5)), "attribute axis is not of type INT"),
    "missing attribute": (of_nodes(node("Cast", ["x"], ["y"])), "attribute to is missing"),
    "subgraph": (
        of_nodes(node("If", ["x"], ["y"], then_branch=relu().graph, else_branch=relu().graph)),
        "If is not supported",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_bad_file_is_refused_in_one_line(name: str) -> None:
    data, message = DAMAGED[name]
    with pytest.raises(ModelError, match=message) as caught:
        load(data)
    assert "\n" not in str(caught.value)


def i64(*values: int) -> "np.ndarray[Any, Any]":
    return np.array(values, np.int64)


def two(op: str, second: Any, **attributes: Any) -> tuple[bytes, str]:
    return of_nodes(node(op, ["x", "c"], ["y"], name="n", **attributes), constants={"c": second}), f"{op} node 'n'"


MISFITS: dict[str, tuple[bytes, str]] = {
    "reshape": (two("Reshape", i64(5))[0], r"^nbx.onnx: Reshape node 'n': Reshape cannot make \[5\] of \(2, 3\)$"),
    "reshape twice -1": two("Reshape", i64(-1, -1)),
    "reshape -7": two("Reshape", i64(-7)),
    "reshape floats": two("Reshape", np.ones(1, np.float32)),
    "expand": two("Expand", i64(4, 5)),
    "expand negative": two("Expand", i64(-1, 3)),
    "tile": two("Tile", i64(2)),
    "unbroadcastable": two("Add", np.zeros(4, np.float32)),
    "dtypes": two("MatMul", np.zeros((3, 2), np.int64)),
    "matmul": two("MatMul", np.zeros((4, 2), np.float32)),
    "concat": two("Concat", np.zeros((3, 4), np.float32), axis=1),
    "concat axis": two("Concat", np.zeros((2, 3), np.float32), axis=5),
    "gather index": two("Gather", i64(2)),
    "gather axis": two("Gather", i64(0), axis=2),
    "squeeze": two("Squeeze", i64(0)),
    "squeeze twice": two("Unsqueeze", i64(0, 0)),
    "unsqueeze axis": two("Unsqueeze", i64(9)),
    "pad": two("Pad", i64(1, 2)),
    "pad away": two("Pad", i64(-3, 0, 0, 0)),
    "pad reflect": two("Pad", i64(5, 0, 0, 0), mode="reflect"),
    "softmax axis": (of_nodes(node("Softmax", ["x"], ["y"], name="n", axis=7)), "Softmax node 'n'"),
    "transpose": (of_nodes(node("Transpose", ["x"], ["y"], name="n", perm=[0, 0])), "Transpose node 'n'"),
    "flatten": (of_nodes(node("Flatten", ["x"], ["y"], name="n", axis=3)), "Flatten node 'n'"),
    "conv": two("Conv", np.zeros((1, 1, 3), np.float32)),
    "cast to string": (of_nodes(node("Cast", ["x"], ["y"], name="n", to=8)), "Cast node 'n'"),
    "cast to nothing": (of_nodes(node("Cast", ["x"], ["y"], name="n", to=77)), "Cast node 'n'"),
    "range without end": (
        of_nodes(
            node("Range", ["a", "b", "c"], ["y"], name="n"),
            constants={"a": i64(0)[0], "b": i64(2**62)[0], "c": i64(1)[0]},
        ),
        "Range node 'n'",
    ),
    "range of step 0": (
        of_nodes(
            node("Range", ["a", "b", "c"], ["y"], name="n"),
            constants={"a": i64(0)[0], "b": i64(2)[0], "c": i64(0)[0]},
        ),
        "Range node 'n'",
    ),
    "shape from the data": (
        of_nodes(
            node("Abs", ["x"], ["a"]),
            node("Cast", ["a"], ["s"], to=7),
            node("Reshape", ["x", "s"], ["y"], name="n"),
        ),
        "depends on the content of input x",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_node_that_does_not_fit_is_named(name: str) -> None:
    data, message = MISFITS[name]
    model = load(data)
    with pytest.raises(ModelError, match=message) as caught:
        model.specialize({"x": (2, 3)})
    assert "\n" not in str(caught.value)


def test_huge_results_are_refused_without_being_made(device: str) -> None:
    size = i64(2**20, 2**20, 3)
    model = load(of_nodes(node("Expand", ["c", "s"], ["e"]), node("Add", ["e", "x"], ["y"]),
                          constants={"s": size, "c": np.zeros((1, 1, 1), np.float32)}), device)  # fmt: skip
    with pytest.raises(NbxError):
        model(x=np.zeros((1, 3), np.float32))


def test_all_unsupported_nodes_are_listed_at_once() -> None:
    data = of_nodes(node("Foo", ["x"], ["a"]), node("Bar", ["a"], ["b"]), node("Abs", ["b"], ["y"]))
    with pytest.raises(ModelError, match=r"2 nodes are not supported.*Foo.*Bar"):
        load(data)
    found = check(data)
    assert len(found.unsupported) == 2
    assert found.operators == {"Foo": 1, "Bar": 1, "Abs": 1}


def test_nodes_that_no_output_needs_do_not_matter() -> None:
    assert load(of_nodes(node("Foo", ["x"], ["a"]), node("Abs", ["x"], ["y"]))).outputs[0].name == "y"


def test_inputs_are_checked(device: str) -> None:
    model = load(graph([node("Add", ["x", "z"], ["y"])], {**X, "z": np.zeros((2, 3), np.float32)}, ["y"],
                       dynamic=False).SerializeToString(), device)  # fmt: skip
    good = np.zeros((2, 3), np.float32)
    with pytest.raises(ArgumentError, match="input z is missing; allowed: x, z"):
        model(x=good)
    with pytest.raises(ArgumentError, match="no such input; got w; allowed: x, z"):
        model(x=good, z=good, w=good)
    with pytest.raises(DTypeError, match="input z has the wrong dtype; got float64; allowed: float32"):
        model(x=good, z=good.astype(np.float64))
    with pytest.raises(ShapeError, match="wrong shape"):
        model(x=good, z=good.T)
    with pytest.raises(ShapeError, match="wrong rank"):
        model(x=good, z=good[0])
    with pytest.raises(DTypeError, match="wrong dtype; got <U1"):
        model(x=good, z=np.array(["a"]))
    with pytest.raises(DTypeError, match="wrong dtype; got >f4"):
        model(x=good, z=good.astype(">f4"))
    with pytest.raises(DeviceError, match="different devices; got null and null"):
        model(x=nbx.from_numpy(good, NullDevice()), z=nbx.from_numpy(good, NullDevice()))
    assert nbx.to_numpy(model(x=good, z=good)["y"]).shape == (2, 3)


def test_named_dimensions_must_agree() -> None:
    model = graph([node("Add", ["x", "z"], ["y"])], {**X, "z": np.zeros((2, 3), np.float32)}, ["y"])
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(ShapeError, match="x and z do not agree on batch; got 2 and 4"):
        load(model.SerializeToString()).specialize({"x": (2, 3), "z": (4, 3)})


def test_external_data(tmp_path: Path, device: str) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 8 + values.tobytes())
    (tmp_path.parent / "outside.bin").write_bytes(values.tobytes())
    (tmp_path / "link.bin").symlink_to(tmp_path.parent / "outside.bin")
    path = tmp_path / "model.onnx"

    def model(location: str, **facts: str) -> bytes:
        made = graph([node("Add", ["x", "c"], ["y"])], X, ["y"], constants={"c": values.reshape(2, 3)})
        external(location, **facts)(made)
        return made.SerializeToString()

    path.write_bytes(model("weights.bin", offset="8", length="24"))
    got = nbx.to_numpy(load(path, device)(**X)["y"])
    np.testing.assert_array_equal(got, values.reshape(2, 3))
    for location, facts in (
        ("../outside.bin", {}),
        (str(tmp_path.parent / "outside.bin"), {}),
        ("link.bin", {}),
        ("absent.bin", {}),
        ("", {}),
        (".", {}),
        ("weights.bin", {"offset": "16"}),
        ("weights.bin", {"offset": "-8"}),
        ("weights.bin", {"length": "12"}),
        ("weights.bin", {"length": "many"}),
        ("a\0b", {}),
    ):
        path.write_bytes(model(location, **facts))
        with pytest.raises(ModelError):
            load(path)


def test_missing_file() -> None:
    with pytest.raises(ModelError, match=r"cannot read no/such.onnx; got No such file"):
        load("no/such.onnx")


def test_reading_a_huge_claim_takes_no_memory() -> None:
    code = (
        "import resource, sys; from nbxtensor.onnx.parse import read; from nbxtensor.base.errors import ModelError\n"
        "import onnx\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "try:\n    read(sys.stdin.buffer.read())\nexcept ModelError as e:\n    print(e)"
    )
    data = changed(dims(2**31, 2**20))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=60)
    assert b"needs" in done.stdout, done.stderr.decode()


def test_reading_gives_a_plain_graph() -> None:
    made = read(relu().SerializeToString())
    assert [str(n) for n in made.nodes] == ["Abs node 'a'"]
    assert str(made.inputs[0]) == "x: float32 [?, ?]"


def test_names_that_are_not_utf8():
    model = graph([helper.make_node("Abs", ["xé"], ["y"], name="a")], {"xé": X["x"]}, ["y"]).SerializeToString()
    with pytest.raises(ModelError, match="not UTF-8"):
        load(model.replace("é".encode(), b"\xff\xfe"))
