"""``nbxtensor pack``: what it covers, what it writes, what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import nbxtensor as nbx
from compile_kernels import fill_kernel
from nbxtensor.base.errors import ArgumentError
from nbxtensor.cli.__main__ import main
from nbxtensor.cli.pack_calls import COMMON
from nbxtensor.cli.pack_census import both_alignments, common_census, operator_census, sizes_of
from nbxtensor.cli.run import parse_pairs
from nbxtensor.compiler import pack_build, packs
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.pack_build import Wanted, build
from nbxtensor.compiler.pack_file import Pack, write_pack
from nbxtensor.compiler.sources import sources_hash
from nbxtensor.device.artifact import Options, Target
from nbxtensor.device.profile import load_profile
from nbxtensor.device.protocol import Profile
from nbxtensor.kernel.call_text import call_of
from nbxtensor.tuning import tables
from nbxtensor.tuning.certificate import Certificate, write_table
from pack_tools import items

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def nothing_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_named", ())
    monkeypatch.delenv("NBX_PACKS", raising=False)
    monkeypatch.setenv("COLUMNS", "160")


def run(*arguments: object) -> int:
    return main(["pack", *map(str, arguments)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 33]) for n in ("x", "y")]
    nodes = [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("Softmax", ["e"], ["y"], axis=-1)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 9
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_operators_on_two_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.nbxpack"
    assert run("--arch", "x86-64-v3,sm_90", "--ops", "relu(float32[100]), add(int32[8], int32[8])", "-o", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["arch", "kernels", "bytes", "registers", "stack", "shared"]
    assert [line.split()[:2] for line in lines[2:4]] == [["sm_90", "4"], ["x86-64-v3", "2"]]
    assert lines[5].startswith(f"{path}: 6 kernels, ")
    pack = Pack(path)
    assert pack.manifest["origins"] == ["add(int32[8], int32[8])", "relu(float32[100])"]
    assert pack.manifest["sources"] == sources_hash()
    assert {a.target.arch for a in pack.artifacts()} == {"x86-64-v3", "sm_90"}
    assert [k["arch"] for k in pack.manifest["kernels"]] == [a.target.arch for a in pack.artifacts()]
    assert run("--list", path) == 0
    assert "pointwise_flat_kernel" in capsys.readouterr().out
    assert run("--list", path, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["kernels"]) == 6
    assert report["bytes"] == path.stat().st_size
    assert {k["name"] for k in report["kernels"]} == {"nbxtensor.kernel.pointwise.pointwise_flat_kernel"}
    assert all(report["origins"][k["from"][0]].startswith(("add", "relu")) for k in report["kernels"])


def test_targets_that_are_not_here(tmp_path: Path):
    """GPUs of two makers and three ages, packed by a machine that has none; nothing needs more than the device has."""
    path, arches = tmp_path / "a.nbxpack", ("gfx942", "sm_120", "sm_70")
    calls = "softmax(float32[64, 1000]), sort(float16[64, 100]), silu(bfloat16[1000]), sum(float32[4096, 2048], axis=0)"
    assert run("--arch", ",".join(arches), "--ops", calls, "-o", path) == 0
    kernels = list(Pack(path).artifacts())
    assert {k.target.arch for k in kernels} == set(arches)
    for kernel in kernels:
        profile, needs = load_profile(kernel.target.arch), kernel.resources
        assert kernel.binary[:4] == b"\x7fELF"
        assert 0 < needs.registers <= profile.registers_per_thread
        assert needs.shared_bytes <= profile.shared_bytes
        assert needs.stack_bytes == 0


@pytest.mark.parametrize(
    "manifest", [{}, {"kernels": 7, "left_out": 3, "file": "x"}, {"kernels": [1, {"name": "\x1b[2J", "from": "x"}]}]
)
def test_a_pack_with_a_strange_manifest_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], manifest: dict[str, object]
):
    path = tmp_path / "a.nbxpack"
    write_pack(path, items(), manifest, {})
    assert run("--list", path) == 0
    out = capsys.readouterr().out
    assert "some_kernel" in out
    assert "\x1b" not in out
    assert run("--list", path, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["file"], len(report["kernels"])) == (str(path), 3)


def test_a_model_runs_from_its_pack(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "m.nbxpack"
    arch = str(nbx.asarray(0.0).device.target)
    assert run("--arch", arch, "--model", model, "--dim", "batch=1,3-4", "-o", path, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["origins"] == ["model.onnx batch=1", "model.onnx batch=3", "model.onnx batch=4"]
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("NBX_COMPILE_WORKERS", "1")
    monkeypatch.setattr("nbxtensor.compiler.compile.compile_fresh", lambda job: pytest.fail("compiled"))
    for batch in (1, 3, 4):
        folder = tmp_path / str(batch)
        command = ["run", model, "--pack", path, "--dim", f"batch={batch}", "--output-dir", folder, "--json"]
        assert main([*map(str, command)]) == 0
        y = np.load(folder / "y.npy")
        assert y.shape == (batch, 33)
        np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ops", "relu"], "-o FILE.nbxpack"),
        (["--ops", "relu", "-o", "a.zip"], "-o FILE.nbxpack"),
        (["--ops", "relu", "-o", "a.nbxpack"], "say --arch"),
        (["--arch", "sm_1", "--ops", "relu", "-o", "a.nbxpack"], "sm_1; allowed"),
        (["--arch", "restricted", "--ops", "relu", "-o", "a.nbxpack"], "restricted; allowed"),
        (["--arch", "sm_90", "-o", "a.nbxpack"], "nothing to pack"),
        (["--arch", "sm_90", "--ops", "", "-o", "a.nbxpack"], "nothing to pack"),
        (["--arch", "sm_90", "--ops", "no_such", "-o", "a.nbxpack"], "no_such; allowed"),
        (
            ["--arch", "sm_90", "--ops", "relu, conv", "-o", "a.nbxpack"],
            "no calls of this operator are usual; got conv",
        ),
        (["--arch", "sm_90", "--ops", "relu(float32[3]", "-o", "a.nbxpack"], "cannot be read"),
        (["--arch", "sm_90", "--ops", "relu(open('x'))", "-o", "a.nbxpack"], "not an argument"),
        (["--arch", "sm_90", "--ops", "relu(float32[x])", "-o", "a.nbxpack"], "whole numbers"),
        (["--arch", "sm_90", "--ops", "relu(float99[3])", "-o", "a.nbxpack"], "float99"),
        (["--arch", "sm_90", "--ops", "relu(float32[-3])", "-o", "a.nbxpack"], "not an argument"),
        (["--arch", "sm_90", "--ops", "relu(float32[3], 1, 2, 3)", "-o", "a.nbxpack"], "not a call of relu"),
        (["--arch", "sm_90", "--ops", "sum(float32[3], axis=7)", "-o", "a.nbxpack"], "axis"),
        (["--arch", "sm_90", "--ops", "1 + 2", "-o", "a.nbxpack"], "not an operator"),
        (["--arch", "sm_90", "--model", "absent.onnx", "-o", "a.nbxpack"], "absent.onnx"),
        (["--list", "absent.nbxpack"], "No such file"),
    ],
)
def test_what_is_refused(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_dimensions(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sizes_of("1,2,8-11", "n") == [1, 2, 8, 9, 10, 11]
    for text in ("", "x", "3-", "4-3", "-1", "1,,2", "1-99999", f"1-{10**18}"):
        with pytest.raises(ArgumentError):
            sizes_of(text, "n")
    assert parse_pairs(["a=b=3"], "--dim") == {"a=b": "3"}
    assert parse_pairs(["a=b=3.npy"], "--input") == {"a": "b=3.npy"}
    path = tmp_path / "a.nbxpack"
    assert run("--arch", "sm_90", "--model", model, "--dim", "length=3", "-o", path) == 2
    assert "allowed: batch" in capsys.readouterr().err


def test_what_cannot_be_launched_stays_out(monkeypatch: pytest.MonkeyPatch):
    found = Wanted()
    operator_census(found, ["sm_90", "x86-64-v3"], ["relu(float32[100])"])

    def restricted(arch: str) -> Profile:
        profile = load_profile(arch)
        return replace(profile, registers_per_thread=2) if profile.warp_size > 1 else profile

    monkeypatch.setattr(pack_build, "load_profile", restricted)
    built = build(found, "0")
    assert len(built.refused) == 2
    assert all("pointwise_flat_kernel for sm_90: " in text and "registers of 2" in text for text in built.refused)
    assert {i.artifact.target.arch for i in built.items} == {"x86-64-v3"}
    assert built.manifest["left_out"] == built.refused


def test_both_alignments():
    signature = (("x_ptr", "*fp32"), ("n", "i64"), ("shape", ("i64", "i64")))
    job = Job(fill_kernel, signature, (), Options(), frozenset({"x_ptr", "n", "shape.1"}), Target("cuda", "sm_90"))
    aligned, other = both_alignments(job)
    assert aligned == job
    assert other.divisible == {"n", "shape.1"}
    assert both_alignments(other) == (aligned, other)
    on_cpu = Job(fill_kernel, signature, (), Options(), frozenset(), Target("cpu", "x86-64-v3"))
    assert both_alignments(on_cpu) == (on_cpu,)


def test_tables_of_certificates_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those that count: a user's own before the shipped ones."""

    def one(key: str, compiler: str) -> Certificate:
        return Certificate(key, {"a": 1}, False, {}, {}, {}, compiler, "")

    places = {"own": [one("k", "mine")], "shipped": [one("k", "theirs"), one("other", "theirs")]}
    for place, certificates in places.items():
        for arch in ("sm_90", "sm_80"):
            (tmp_path / place / arch).mkdir(parents=True)
            (tmp_path / place / arch / "relu.json").write_text(write_table(certificates))
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "own"))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "shipped")
    tables.forget()
    path = tmp_path / "a.nbxpack"
    try:
        assert run("--arch", "sm_90", "--ops", "relu(float32[100])", "-o", path) == 0
    finally:
        tables.forget()
    assert Pack(path).certificates() == {
        "sm_90/relu.json": write_table([one("k", "mine"), one("other", "theirs")]).encode()
    }


def test_the_usual_calls_are_calls():
    for name, calls in COMMON.items():
        for call in calls(name):
            assert call_of(call).operator == name
    found = Wanted()
    common_census(found, ["x86-64-v3", "sm_90"])
    names = {origin.split("(")[0] for origins in found.origins.values() for origin in origins}
    assert names == set(COMMON)
    assert 400 < len(found.jobs) < 600


def test_reproducible(tmp_path: Path):
    """Two checkouts, folders, hash seeds, caches: the same bytes."""
    made: list[bytes] = []
    for number in (1, 2):
        copy = tmp_path / f"checkout{number}" / ("deeper" * number)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        folder = tmp_path / f"cwd{number}"
        folder.mkdir()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("NBX_")},
            "PYTHONPATH": str(copy / "src"),
            "PYTHONHASHSEED": str(number),
            "NBX_CACHE_DIR": str(tmp_path / f"cache{number}"),
            "NBX_COMPILE_WORKERS": str(number),
        }
        ops = "silu(float16[100]), softmax(float32[4, 100]), sort(float32[4, 40])"
        command = ["pack", "--arch", "x86-64-v3,sm_90", "--ops", ops, "-o", f"p{number}.nbxpack"]
        done = subprocess.run(
            [sys.executable, "-m", "nbxtensor.cli", *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        made.append((folder / f"p{number}.nbxpack").read_bytes())
        pack = Pack(folder / f"p{number}.nbxpack")
        assert not any(str(tmp_path).encode() in a.binary or b".py" in a.binary for a in pack.artifacts())
    assert made[0] == made[1]
