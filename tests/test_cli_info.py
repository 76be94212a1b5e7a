"""``nbxtensor info``: what is in use, the census of a model, and launches without a certificate."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from doctor_tools import process
from nbxtensor.cli import show
from nbxtensor.cli.__main__ import main
from nbxtensor.compiler import packs
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import target_of
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.onnx.model import load
from nbxtensor.tuning import choose, log, tables
from nbxtensor.tuning.certificate import DIGITS, Certificate, encode, write_table
from onnx_graphs import graph
from test_store import make

ENTRY = log.OpenKey("softmax|rows|length=64|-|float32|sm_90", "uncertified", "", "nbxtensor certify --op softmax", 3)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, no shipped tables, and no other switch."""
    for name in [n for n in os.environ if n.startswith("NBX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    monkeypatch.setattr(packs, "in_use", tuple)
    tables.forget()
    yield tmp_path / "cache"
    tables.forget()
    forget_plans()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A softmax and a sum, of 300 values in a batch that has a name."""
    x = {"x": np.zeros((2, 300), np.float32)}
    made = graph([helper.make_node("Softmax", ["x"], ["h"]), helper.make_node("Add", ["h", "x"], ["y"])], x, ["y"])
    batch, length = made.graph.input[0].type.tensor_type.shape.dim
    batch.dim_param, length.dim_value = "batch", 300
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["info", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def put(place: Path, arch: str, operator: str, *keys: str, setting: Any = None) -> Path:
    made = [Certificate(key, setting or {"0": 1}, True, {"0" * 16: "1" * 16}, {}, {}, "c", "d") for key in keys]
    path = place / "tables" / arch / f"{operator}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_table(made))
    return path


def test_everything_in_use(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ArtifactStore(place).put(make(1))
    path = put(place, "sm_90", "softmax", "a", "b")
    damaged = put(place, "sm_90", "sort", "c")
    damaged.write_text("{}\n")
    log.append([ENTRY])
    monkeypatch.setenv("NBX_NUM_THREADS", "1")
    found = shown(capsys)
    assert set(found) == {"versions", "devices", "settings", "cache", "tables", "packs", "uncertified"}
    assert found["versions"]["numpy"] == np.__version__
    assert found["devices"][0]["name"] == "cpu"
    assert found["devices"][0]["target"].startswith("x86-64-v")
    assert found["settings"] == {"NBX_CACHE_DIR": str(place), "NBX_NUM_THREADS": "1"}
    assert {k: found["cache"][k] for k in ("directory", "entries", "limit")} == {
        "directory": str(place),
        "entries": 1,
        "limit": 1 << 30,
    }
    softmax, sort = found["tables"]
    assert softmax == {
        "folder": str(place / "tables"),
        "arch": "sm_90",
        "operator": "softmax",
        "certificates": 2,
        "bytes": path.stat().st_size,
        "error": None,
    }
    assert "is not a certificate" in sort["error"]
    (entry,) = found["uncertified"]
    assert entry == {"key": ENTRY.key, "status": "uncertified", "reason": "", "command": ENTRY.command, "times": 3}
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    for word in (ENTRY.key, ENTRY.command, "1 kernel, ", "numpy", "NBX_NUM_THREADS", "packs: none", "is not a certif"):
        assert word in text


def test_clear(capsys: pytest.CaptureFixture[str]) -> None:
    log.append([ENTRY])
    assert shown(capsys, "--clear") == {"removed": 1}
    assert log.read_log() == []
    assert main(["info", "--clear"]) == 0
    assert capsys.readouterr().out == "forgot 0 keys\n"
    assert main(["info"]) == 0
    assert "no launch on record" in capsys.readouterr().out


def test_the_launches_of_another_process_are_listed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import nbxtensor as nbx; nbx.nn.softmax(nbx.asarray([[1.0, 2.0]]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)
    (entry,) = shown(capsys)["uncertified"]
    assert entry["key"].startswith("softmax|")
    assert entry["command"].startswith("nbxtensor certify --op 'softmax(float32[1, 2])' --arch ")


def test_the_census_of_a_model(model: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "--model", str(model), "--dim", "batch=5", "--device", "null:sm_90")
    assert (found["target"], found["shapes"]) == ("sm_90", {"x": [5, 300]})
    assert sorted(row["key"].split("|")[0] for row in found["keys"]) == ["pointwise", "softmax"]
    assert {row["status"] for row in found["keys"]} == {"uncertified"}
    assert all(row["command"].endswith("--arch sm_90") for row in found["keys"])
    assert found["counts"] == {"certified": 0, "uncertified": 2, "stale": 0}
    assert log.read_log() == []
    assert not (place / "v1").exists()


def test_the_census_tells_certified_from_stale(model: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", str(model), "--device", "null:x86-64-v3")
    pointwise, softmax = (row["key"] for row in shown(capsys, *arguments)["keys"])
    put(place, "x86-64-v3", "pointwise", pointwise, setting={"block": 4096, "num_warps": 1})
    put(place, "x86-64-v3", "softmax", softmax)
    tables.forget()
    found = shown(capsys, *arguments)
    assert found["counts"] == {"certified": 0, "uncertified": 0, "stale": 2}
    first, second = (row["reason"] for row in found["keys"])
    assert "other sources or another compiler" in first
    assert "not a candidate" in second
    assert main(["info", *arguments]) == 0
    text = capsys.readouterr().out
    assert "0 certified, 0 uncertified, 2 stale" in text
    assert f"nbxtensor certify --model {model} --arch x86-64-v3" in text


def test_the_census_counts_what_is_certified(model: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = NullDevice(target_of("x86-64-v3"))
    with choose.observed() as seen:
        load(model).specialize({"x": (1, 300)}, device)
    default = next(use.setting for use in seen.values() if use.key.operator == "softmax")
    forget_plans()
    with choose.forced("softmax", "softmax", default) as wish:
        load(model).specialize({"x": (1, 300)}, NullDevice(target_of("x86-64-v3")))
    ((key, plans),) = wish.taken
    proved = {plan.artifact_key(aligned)[:DIGITS]: "0" * DIGITS for plan in plans for aligned in plan.alignments}
    certificate = Certificate(str(key), encode(default), True, proved, {}, {}, "c", "d")
    put(place, "x86-64-v3", "softmax").write_text(write_table([certificate]))
    tables.forget()
    found = shown(capsys, "--model", str(model), "--device", "null:x86-64-v3")
    assert found["counts"] == {"certified": 1, "uncertified": 1, "stale": 0}
    assert main(["info", "--model", str(model), "--device", "null:x86-64-v3"]) == 0
    assert "1 certified, 1 uncertified, 0 stale" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cpu"], "need --model"),
        (["--clear", "--model", "m.onnx"], "does not go with --model"),
        (["--model", "gone.onnx"], "gone.onnx"),
    ],
)
def test_mistakes(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_what_is_broken_is_shown_and_the_rest_too(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.write_text("")
    monkeypatch.setenv("NBX_CPU_LEVEL", "x86-64-v9")
    monkeypatch.setenv("NBX_NUM_THREADS", "none")
    found = shown(capsys)
    assert "cannot list" in found["cache"]["error"]
    assert "NBX_CPU_LEVEL" in found["devices"][0]["error"]
    assert "cannot be listed" in found["tables"][0]["error"]
    assert main(["info"]) == 0
    assert "cannot list" in capsys.readouterr().out


def test_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class FakePack:
        path = tmp_path / "a.nbxpack"
        manifest = {"library": "0.1.0"}  # noqa: RUF012

    FakePack.path.write_bytes(b"12345")
    monkeypatch.setattr(packs, "in_use", lambda: [FakePack()])
    assert shown(capsys)["packs"] == [{"path": str(FakePack.path), "bytes": 5, "manifest": {"library": "0.1.0"}}]
    assert main(["info"]) == 0
    assert "a.nbxpack" in capsys.readouterr().out
    FakePack.path.unlink()
    assert "No such file" in shown(capsys)["packs"][0]["error"]


def test_tables_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show.print_table("things", ("status", "name"), [("problem", "a [bold] path"), ("ok", "b")])
    text = capsys.readouterr().out
    assert "┃" in text
    assert "a [bold] path" in text


def test_sizes() -> None:
    assert [show.size(n) for n in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert [show.bandwidth(n) for n in (0.0, 4.244e12)] == ["unknown", "4244 GB/s"]


def test_info_in_a_process() -> None:
    status, out, err = process("info")
    assert (status, err) == (0, "")
    assert out.startswith("versions:")


def test_tables_without_a_title_stand_beside_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_table("", ("name", "bytes"), [("a", "7"), ("longer", "1,234,567")], right=("bytes",))
    assert capsys.readouterr().out.splitlines() == [
        "name        bytes",
        "a               7",
        "longer  1,234,567",
    ]


@pytest.mark.parametrize("verb", ["certify", "info"])
def test_a_census_draws_no_values(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Models of a size that no memory holds are looked at, too."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 33]) for n in ("x", "y")]
    made = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], "g", ports[:1], ports[1:])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    more = ["--list"] if verb == "certify" else []
    assert main([verb, "--model", str(path), "--dim", f"batch={10**14}", *more]) == 0
    assert "softmax|" in capsys.readouterr().out
    assert main([verb, "--model", str(path), "--dim", f"batch={10**20}", *more]) == 2
    assert f"nbxtensor {verb}: the shape has too many elements" in capsys.readouterr().err
