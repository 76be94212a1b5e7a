"""The command that an uncertified launch names certifies it; how calls are read from command lines."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tools import demo_calls

import golden_cases
import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, DTypeError, ShapeError, UncertifiedKeyError
from nbxtensor.certify.asked import example_of, shape_of
from nbxtensor.certify.census import Census, keys_of
from nbxtensor.certify.run import BATCH, Ahead, Certifier
from nbxtensor.certify.shapes import DEMO, usual_calls
from nbxtensor.certify.store import read
from nbxtensor.cli.app import run
from nbxtensor.cli.certify import best_standing
from nbxtensor.compiler.jobs import compiler_version
from nbxtensor.device import get
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of
from nbxtensor.kernel.call_text import Example, Spec, call_of, calls_of, plain
from nbxtensor.kernel.public_call import running_call
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.onnx.model import load
from nbxtensor.onnx.zoo import files
from nbxtensor.tuning import tables
from nbxtensor.tuning.certificate import write_table
from nbxtensor.tuning.choose import forget_uses, observed
from nbxtensor.tuning.key import LaunchKey
from onnx_graphs import graph

F, I = dtypes.float32, dtypes.int64  # noqa: E741


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))

    def forget() -> None:
        tables.forget()
        forget_plans()
        forget_uses()

    forget()
    yield
    forget()


def normal(device: str, *shape: int) -> nbx.Tensor:
    return nbx.asarray(np.random.default_rng(0).standard_normal(shape, np.float32), device=device)


def indices(device: str, *shape: int) -> nbx.Tensor:
    return nbx.asarray(np.zeros(shape, np.int64), device=device)


CALLS: dict[str, Callable[[str], Any]] = {
    "flat": lambda d: nbx.add(normal(d, 500), 2.5),
    "tile": lambda d: nbx.exp(normal(d, 24, 40).T),
    "compare": lambda d: nbx.less(normal(d, 500), normal(d, 500)),
    "setitem": lambda d: normal(d, 24, 40).__setitem__(3, 1.0),
    "astype": lambda d: normal(d, 500).astype("int8"),
    "concat": lambda d: nbx.concat([normal(d, 4, 5), normal(d, 4, 6)], axis=1),
    "reduction": lambda d: nbx.sum(normal(d, 3, 40, 5), axis=1),
    "argmax": lambda d: nbx.argmax(normal(d, 24, 40), axis=0),
    "scan": lambda d: nbx.cumulative_sum(normal(d, 24, 40), axis=0),
    "softmax": lambda d: nbx.nn.softmax(normal(d, 24, 40), axis=0, safe=True),
    "out": lambda d: nbx.nn.softmax(normal(d, 24, 40), out=nbx.empty((24, 40), F, d)),
    "norm": lambda d: nbx.nn.layer_norm(normal(d, 24, 40), None, normal(d, 40)),
    "matmul": lambda d: nbx.nn.linear(normal(d, 20, 30), normal(d, 10, 30), normal(d, 10)),
    "sort": lambda d: nbx.sort(normal(d, 24, 40), axis=0, descending=True),
    "topk": lambda d: nbx.topk(normal(d, 3, 300), 7),
    "gather": lambda d: nbx.take(normal(d, 24, 40), indices(d, 7), axis=0),
    "conv": lambda d: nbx.nn.conv(normal(d, 2, 8, 12, 12), normal(d, 16, 8, 3, 3), padding=1),
    "max pool": lambda d: nbx.nn.max_pool(normal(d, 2, 8, 12, 12), 3, 2),
    "arange": lambda d: nbx.arange(3, 200, 2, device=d),
    "full": lambda d: nbx.full((24, 40), 2.5, device=d),
    "arange of floats": lambda d: nbx.arange(0.5, 90, 0.1, dtype="float64", device=d),
    "arange backward": lambda d: nbx.arange(9, 0.05, -0.1, dtype=nbx.bfloat16, device=d),
    "arange cut to integers": lambda d: nbx.arange(-9.75, 9, 0.25, dtype="int16", device=d),
    "linspace": lambda d: nbx.linspace(0, 1, 500, device=d),
    "linspace without its end": lambda d: nbx.linspace(-3, 1, 700, dtype=np.float64, endpoint=False, device=d),
    "full_like": lambda d: nbx.full_like(normal(d, 24, 40), 3),
    "zeros_like": lambda d: nbx.zeros_like(normal(d, 24, 41)),
    "ones_like": lambda d: nbx.ones_like(normal(d, 24, 42), dtype=nbx.int8),
    "eye": lambda d: nbx.eye(24, 40, k=2, device=d),
    "a text": lambda d: nbx.nn.gelu(normal(d, 500), "tanh"),
    "a view backward": lambda d: nbx.exp(normal(d, 500)[::-3]),
    "a row for all": lambda d: nbx.add(normal(d, 24, 40), normal(d, 40).broadcast_to((24, 40))),
    "no axis": lambda d: nbx.exp(nbx.asarray(1.0, device=d)),
    "axes of numpy": lambda d: nbx.sum(normal(d, 3, 40, 5), axis=(np.int64(0), np.int64(-1)), keepdims=True),
    "infinity": lambda d: nbx.clip(normal(d, 500), -float("inf"), 1.0),
    "nested": lambda d: nbx.pad(normal(d, 24, 40), ((1, 2), (0, 3)), float("nan")),
    "initial": lambda d: nbx.cumulative_sum(normal(d, 500), dtype=float, include_initial=True),
    "where": lambda d: nbx.where(normal(d, 500) > 0, normal(d, 500), 0),
    "embedding": lambda d: nbx.nn.embedding(indices(d, 3, 7), normal(d, 50, 33)),
    "take along": lambda d: nbx.take_along_axis(normal(d, 24, 40), indices(d, 24, 7), axis=1),
    "stack": lambda d: nbx.stack([normal(d, 24, 40), normal(d, 24, 40)], axis=-1),
    "argsort": lambda d: nbx.argsort(normal(d, 24, 40), descending=True),
    "pool": lambda d: nbx.nn.avg_pool(normal(d, 2, 8, 12, 12), 3, padding=1, count_include_pad=True),
    "rms norm": lambda d: nbx.nn.rms_norm(normal(d, 24, 40), normal(d, 40), eps=1e-6),
    "an operator of Python": lambda d: 2 ** normal(d, 500),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_command_of_an_uncertified_launch_certifies_it(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NBX_CERTIFIED_ONLY", "1")
    asked: list[str] = []
    while command := command_for(name, device):
        assert command not in asked
        asked.append(command)
        assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert asked


def command_for(name: str, device: str) -> str:
    """What certifies the first launch of a call that is not certified; "" if all are."""
    forget_plans()
    tables.forget()
    try:
        CALLS[name](device)
    except UncertifiedKeyError as error:
        return error.mend.removeprefix("run: ").removesuffix(", or unset NBX_CERTIFIED_ONLY")
    return ""


@pytest.mark.parametrize("arch", ["sm_90", "x86-64-v3"])
def test_the_call_that_a_key_names_asks_for_it(arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every operator on its samples, and the calls above."""
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    null, seen = get(f"null:{arch}"), set[str]()
    assert isinstance(null, NullDevice)

    def check(keys: Iterable[LaunchKey], name: str) -> None:
        for key in keys:
            call = call_of(key.call)
            assert str(call) == key.call
            assert key in keys_of(call, null), (name, key.command)
            seen.add(call.operator)

    for name, call in (*CALLS.items(), ("a triangle", lambda d: nbx.tril(normal(d, 24, 40), k=-1))):
        forget_plans()
        with observed() as keys:
            call(null.name)
        assert keys, name
        check(keys, name)
    for case, op, arguments in golden_cases.cases():
        if case.endswith("/0"):
            with observed() as keys, suppress(DTypeError):
                op.function(*(golden_cases.on_device(a, null) for a in arguments))
            check(keys, case)
    assert len(seen) > 90


def test_no_call_is_named_outside_of_operators() -> None:
    assert running_call() == ""


TEXTS = {
    "exp(float32[4, 5])": Example("exp", (plain((4, 5), F),)),
    "exp(int8[()])": Example("exp", (plain((), dtypes.int8),)),
    "exp(float16[4:1, 5:4])": Example("exp", (Spec((4, 5), (1, 4), dtypes.float16),)),
    "exp(float32[9:-1])": Example("exp", (Spec((9,), (-1,), F),)),
    "exp(float32[4:0, 5:1])": Example("exp", (Spec((4, 5), (0, 1), F),)),
    "exp(float32[4], out=float32[4:2])": Example("exp", (plain((4,), F),), (("out", Spec((4,), (2,), F)),)),
    "add(float32[4, 5], 2.5)": Example("add", (plain((4, 5), F), 2.5)),
    "add(True, float32[5])": Example("add", (True, plain((5,), F))),
    "clip(float32[4], None, inf)": Example("clip", (plain((4,), F), None, float("inf"))),
    "concat([float32[4, 5], float32[4, 6]], axis=1)": Example(
        "concat", ((plain((4, 5), F), plain((4, 6), F)),), (("axis", 1),)
    ),
    "astype(float32[9], int8)": Example("astype", (plain((9,), F), dtypes.int8)),
    "full((4, 5), fill_value=-0.0, dtype=float32)": Example(
        "full", ((4, 5),), (("fill_value", -0.0), ("dtype", dtypes.float32))
    ),
    'gelu(float32[9], approximate="tanh")': Example("gelu", (plain((9,), F),), (("approximate", "tanh"),)),
    "tile(float32[9], repetitions=(2,))": Example("tile", (plain((9,), F),), (("repetitions", (2,)),)),
    "linspace(0.0, 1.0, num=5)": Example("linspace", (0.0, 1.0), (("num", 5),)),
    "layer_norm(float32[4, 5], None, float32[5])": Example("layer_norm", (plain((4, 5), F), None, plain((5,), F))),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_and_calls(text: str) -> None:
    (read,) = calls_of(text, lambda name: ())
    assert (str(read), repr(read)) == (text, repr(TEXTS[text]))
    assert read == TEXTS[text]
    assert hash(read) == hash(TEXTS[text])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("softmax( float32[4,5] , -1,safe=False, out=None)", "softmax(float32[4, 5])"),
        ("sum(float32[4, 5], [0, 1])", "sum(float32[4, 5], axis=(0, 1))"),
        ("exp(float32[4:5, 5])", "exp(float32[4, 5])"),
        ("exp(float32[4:1, 5])", "exp(float32[4:1, 5:1])"),
        ("concat((float32[4], float32[5]))", "concat([float32[4], float32[5]])"),
        ("arange(5, device='cuda', dtype='int8')", "arange(5, dtype=int8)"),
        ("layer_norm(x=float32[4, 5], bias=float32[5])", "layer_norm(float32[4, 5], None, float32[5])"),
        ("topk(k=3, x=float32[9])", "topk(float32[9], k=3)"),
        ("pad(float32[9], 1, mode='edge')", 'pad(float32[9], pad_width=1, mode="edge")'),
    ],
)
def test_equal_calls_have_one_text(text: str, canonical: str) -> None:
    assert str(call_of(text)) == canonical


@pytest.mark.parametrize(
    ("short", "text"),
    [
        (("exp", "4x5"), "exp(float32[4, 5])"),
        (("add", "4x5"), "add(float32[4, 5], float32[4, 5])"),
        (("add", "4x5", "5"), "add(float32[4, 5], float32[5])"),
        (("where", "7"), "where(bool[7], float32[7], float32[7])"),
        (("embedding", "3x7", "50x33"), "embedding(int64[3, 7], float32[50, 33])"),
        (("sum", "4x5"), "sum(float32[4, 5], axis=-1)"),
        (("sum", "4"), "sum(float32[4])"),
        (("topk", "4x5"), "topk(float32[4, 5], k=8)"),
        (("concat", "4x5", "4x6"), "concat([float32[4, 5], float32[4, 6]])"),
        (("layer_norm", "4x5", "5", "5"), "layer_norm(float32[4, 5], float32[5], float32[5])"),
        (("arange", "9"), "arange(9)"),
        (("full", "4x5"), "full((4, 5), fill_value=0)"),
        (("astype", "9"), "astype(float32[9], float32)"),
    ],
)
def test_short_forms_are_calls(short: tuple[str, ...], text: str) -> None:
    name, *shapes = short
    assert str(example_of(name, [shape_of(shape) for shape in shapes])) == text


def test_the_dtype_of_a_short_form() -> None:
    assert str(example_of("where", [(7,)], dtypes.int8)) == "where(bool[7], int8[7], int8[7])"
    assert str(example_of("ones", [(7, 8)], dtypes.int8)) == "ones((7, 8), dtype=int8)"


@pytest.mark.parametrize("text", ["", "x", "4x", "4 x 5", "-4", "4@1", "4:int8", "=4", "4\u0663", "1" * 30])
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises(ArgumentError):
        shape_of(text)


@pytest.mark.parametrize("text", ["x".join("1" * 65), f"{10**17}x{10**17}"])
def test_shapes_that_no_tensor_has(text: str) -> None:
    with pytest.raises(ShapeError):
        shape_of(text)
    with pytest.raises(ShapeError):
        call_of(f"exp(float32[{text.replace('x', ', ')}])")


@pytest.mark.parametrize("axes", ["2:3:4", "2:", ":", ":3"])
def test_axes_are_a_size_or_a_size_and_a_step(axes: str) -> None:
    with pytest.raises(ArgumentError):
        call_of(f"exp(float32[{axes}])")


def test_a_tensor_does_not_reach_over_more_than_all_memory() -> None:
    with pytest.raises(ShapeError, match="more memory than there can be"):
        call_of(f"exp(float32[4:{2**61}])")


@pytest.mark.parametrize(("name", "count"), [("exp", 0), ("exp", 3), ("linspace", 1), ("matmul", 0), ("reshape", 1)])
def test_short_forms_that_say_too_little(name: str, count: int) -> None:
    with pytest.raises(ArgumentError, match="needs other shapes"):
        example_of(name, [(4, 5)] * count)


def test_certify_takes_lists_of_names_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--op", "exp, sum(float32[9, 7:0])", "--ops", "softmax", "--shapes", "64x1000,3x4", "--dtype", "bfloat16"]
    assert run(["certify", *asked, "--arch", "sm_90", "--list", "--json"]) == 0
    calls = {call for row in json.loads(capsys.readouterr().out)["keys"] for call in row["calls"]}
    assert calls == {
        *("exp(bfloat16[64, 1000])", "exp(bfloat16[3, 4])", "sum(float32[9:7, 7:0])"),
        *("softmax(bfloat16[64, 1000])", "softmax(bfloat16[3, 4])"),
    }


def require_the_compiler(table: Path) -> None:
    """Skip a test of shipped certificates where other packages compile than those that made their code."""
    made_by = {one.compiler.rpartition(", ")[0] for one in read(table).values()}  # our own part is not asked
    here = compiler_version(target_of(table.parent.name).kind).rpartition(", ")[0]
    if here not in made_by:
        pytest.skip(f"the shipped certificates are for {made_by}, here is {here}")


def test_the_shipped_tables_certify_the_usual_calls(tmp_path: Path) -> None:
    """The calls of the benchmarks, of the demonstration's models, and one of each operator."""
    require_the_compiler(tables.SHIPPED / "x86-64-v3" / "softmax.json")
    device = get("null:x86-64-v3")
    census = Census(device)
    census.add_all(usual_calls(gpu=False))
    standing = {key: best_standing(entry, device, tmp_path)[0] for key, entry in census.entries.items()}
    assert len(standing) > 150
    assert {str(key): status for key, status in standing.items() if status != "certified"} == {}


def test_the_list_names_the_table_that_certifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shipped ones too; of several the first that still holds."""
    require_the_compiler(tables.SHIPPED / "sm_90" / "softmax.json")
    asked = ["certify", "--op", "softmax(float32[65536, 1024]), softmax(float32[7, 9])", "--arch", "sm_90", "--list"]

    def listed() -> list[tuple[str, str]]:
        tables.forget()
        assert run([*asked, "--json"]) == 0
        return [(row["status"], row["table"]) for row in json.loads(capsys.readouterr().out)["keys"]]

    shipped = tables.SHIPPED / "sm_90" / "softmax.json"
    assert listed() == [("certified", str(shipped)), ("uncertified", "")]
    own = tmp_path / "tables" / "sm_90" / "softmax.json"
    own.parent.mkdir(parents=True)
    found = [one for one in read(shipped).values() if "length=1024|" in one.key]
    own.write_text(write_table(replace(one, artifacts={}) for one in found))
    assert listed() == [("certified", str(shipped)), ("uncertified", "")]
    own.write_text(write_table(found))
    assert listed() == [("certified", str(own)), ("uncertified", "")]
    assert run(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"softmax(float32[65536, 1024])  by {own}")
    assert lines[1].startswith("uncertified")
    assert lines[1].endswith("softmax(float32[7, 9])")
    assert lines[2:] == [f"    1 certified by {own}", "    1 uncertified", "2 keys"]


def test_the_command_for_a_model_names_its_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 33]) for n in ("x", "y")]
    made = helper.make_model(
        helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], "g", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    made.ir_version = 9
    path = tmp_path / "a model.onnx"
    path.write_bytes(made.SerializeToString())
    asked = ["info", "--model", str(path), "--dim", "batch=5", "--device", "null:sm_90", "--json"]
    assert run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    keys = {row["key"] for row in found["keys"]}
    for command in (found["command"], *(row["command"] for row in found["keys"])):
        assert run([*shlex.split(command)[1:], "--list", "--json"]) == 0
        assert {row["key"] for row in json.loads(capsys.readouterr().out)["keys"]} == keys


@pytest.mark.parametrize("arch", ["sm_90", "x86-64-v3", "gfx942"])
def test_every_usual_call_has_keys(arch: str) -> None:
    census = Census(get(f"null:{arch}"))
    census.add_all(usual_calls(arch != "x86-64-v3"))
    assert not census.left_out
    named = {e.operator for entry in census.entries.values() for e in entry.examples}
    assert {"softmax", "exp", "add", "sort", "topk", "conv", "matmul", "layer_norm", "sum", "take"} <= named
    for entry in census.entries.values():
        assert entry.examples
        assert entry.candidates
        assert entry.key.arch == arch


def test_models_are_censused_without_running() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Softmax", ["y"], ["z"], axis=-1)]
    model = load(graph(nodes, {"x": np.zeros((3, 7), np.float32)}, ["z"]).SerializeToString())
    census = Census(get("null:sm_90"))
    census.add_model(model, {"x": (3, 700)})
    found = {e.operator for entry in census.entries.values() for e in entry.examples}
    assert found == {"relu", "softmax"}
    assert {e.specs[0].shape for entry in census.entries.values() for e in entry.examples} == {(3, 700)}


@pytest.mark.skipif(not files.is_present(files.MINILM), reason="the models are not here")
def test_the_calls_of_the_demonstration_are_current() -> None:
    assert DEMO.read_text() == demo_calls.text(), "run python -m tools.demo_calls"


def test_kernels_of_many_keys_are_compiled_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    census = Census(get("null:sm_90"))
    census.add_all(Example("softmax", (plain((64, n), F),)) for n in range(100, 2000, 100))
    entries = list(census.entries.values())
    batches: list[int] = []
    monkeypatch.setattr("nbxtensor.certify.run.compiled", lambda jobs: batches.append(len(jobs)))
    with Ahead(Certifier(get("null:sm_90"), tmp_path), entries) as works:
        assert [works.next(entry).entry.key for entry in entries] == [entry.key for entry in entries]
    assert len(batches) < len(entries) / 2
    assert max(batches[1:-1]) >= BATCH
