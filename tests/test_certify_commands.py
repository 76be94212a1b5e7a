"""The command that an uncertified launch names certifies it; how calls are read from command lines."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tools import demo_calls

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, UncertifiedKeyError
from nbxtensor.certify.asked import example_of
from nbxtensor.certify.census import Census
from nbxtensor.certify.example import Example, Spec, plain
from nbxtensor.certify.run import BATCH, Ahead, Certifier
from nbxtensor.certify.shapes import DEMO, usual_calls
from nbxtensor.cli.app import run
from nbxtensor.device import get
from nbxtensor.kernel.public_call import public_call
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.onnx.model import load
from nbxtensor.onnx.zoo import files
from nbxtensor.tuning import tables
from nbxtensor.tuning.choose import forget_uses
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
    "pool": lambda d: nbx.nn.max_pool(normal(d, 2, 8, 12, 12), 3, 2),
    "arange": lambda d: nbx.arange(3, 200, 2, device=d),
    "full": lambda d: nbx.full((24, 40), 2.5, device=d),
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


def test_no_call_is_named_outside_of_operators() -> None:
    assert public_call() == ""


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (("exp", ["4x5"]), Example("exp", (plain((4, 5), F),))),
        (("exp", ["scalar:int8"]), Example("exp", (plain((), dtypes.int8),))),
        (("exp", ["4x5@1x4:float16"]), Example("exp", (Spec((4, 5), (1, 4), dtypes.float16),))),
        (("add", ["4x5"]), Example("add", (plain((4, 5), F), plain((4, 5), F)))),
        (("add", ["4x5", "=2.5"]), Example("add", (plain((4, 5), F), 2.5))),
        (("where", ["7"]), Example("where", (plain((7,), dtypes.bool), plain((7,), F), plain((7,), F)))),
        (("embedding", ["3x7", "50x33"]), Example("embedding", (plain((3, 7), I), plain((50, 33), F)))),
        (("sum", ["4x5"]), Example("sum", (plain((4, 5), F),), (("axis", -1),))),
        (("sum", ["4x5"], None, [("axis", "null")]), Example("sum", (plain((4, 5), F),), (("axis", None),))),
        (("topk", ["4x5"], None, [("k", "3")]), Example("topk", (plain((4, 5), F),), (("k", 3),))),
        (("concat", ["4x5", "4x6"]), Example("concat", ((plain((4, 5), F), plain((4, 6), F)),))),
        (("arange", ["9"]), Example("arange", (9,))),
        (("full", ["4x5"]), Example("full", ((4, 5),), (("fill_value", 0),))),
        (("astype", ["9"], None, [("dtype", "int8")]), Example("astype", (plain((9,), F), dtypes.int8))),
    ],
)  # fmt: skip
def test_calls_are_read_from_texts(arguments: Any, example: Example) -> None:
    assert example_of(*arguments) == example


@pytest.mark.parametrize("text", ["", "x", "4x", "4 x 5", "-4", "4@1x2", "4x5@5", "4:5:6", "4x5:float32@1x1"])
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises((ArgumentError, TypeError)):
        example_of("exp", [text])


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
