"""``nbxtensor demo``: types of files and likeness of sentences."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import nbxtensor as nbx
from nbxtensor.cli.__main__ import main
from nbxtensor.cli.demo import SENTENCES, default_files
from nbxtensor.onnx.zoo import files
from nbxtensor.onnx.zoo.filetypes import FileTypes
from nbxtensor.onnx.zoo.sentences import Sentences
from nbxtensor.tensor.defaults import resolve_device

PYTHON = "import os\n\n\ndef main() -> None:\n    for name in os.listdir('.'):\n        print(name)\n\n\nmain()\n"
JSON = json.dumps({"name": "nbxtensor", "values": list(range(40)), "nested": {"a": [True, None]}}, indent=2)
C = '#include <stdio.h>\n\nint main(int argc, char **argv) {\n    printf("%d\\n", argc);\n    return 0;\n}\n'
HTML = "<!DOCTYPE html>\n<html><head><title>t</title></head><body><p>Hello</p></body></html>\n"


@pytest.fixture(scope="module")
def types(request: pytest.FixtureRequest) -> FileTypes:
    return FileTypes(resolve_device(request.config.getoption("--device")))


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    contents: dict[str, bytes] = {
        "python": PYTHON.encode() * 3,
        "json": JSON.encode(),
        "c": C.encode() * 2,
        "html": HTML.encode() * 4,
        "empty": b"",
        "txt": b"hi\n",
        "unknown": b"\xff\xfe\xfd",
        "gzip": gzip.compress(C.encode() * 9, mtime=0),
    }
    paths = {label: tmp_path / f"sample-{i}" for i, label in enumerate(contents)}
    for label, path in paths.items():
        path.write_bytes(contents[label])
    return paths | {"directory": tmp_path}


def test_types_of_files(types: FileTypes, samples: dict[str, Path]) -> None:
    found = list(types.identify(list(samples.values())))
    assert [f.label for f in found] == list(samples)
    by_label = {f.label: f for f in found}
    assert by_label["python"].description == "Python source"
    assert by_label["python"].mime == "text/x-python"
    assert by_label["python"].score > 0.9
    assert by_label["empty"].score == 1.0


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (b"a", "txt"),
        (b"abcdefg", "txt"),
        (b"   abcdefg", "txt"),
        (b"\xff" * 7, "unknown"),
        (b"\xff" * 8, "unknown"),
        (b"\0" * 100, "unknown"),
        (b"\n" * 5000, "txt"),
        (b" " * 5000 + b"text text text", "txt"),
        (b"\xff\xfe\0\1" + b" " * 9, "txt"),
        ("é".encode() * 3, "txt"),
        (b"x" + b" " * 20, "txt"),
        (b"abc\x80defghi", "txt"),
    ],
)
def test_files_with_little_in_them(types: FileTypes, tmp_path: Path, data: bytes, label: str) -> None:
    """Labels that the package's own command gives."""
    path = tmp_path / "sample"
    path.write_bytes(data)
    (found,) = types.identify([path])
    assert found.label == label


def test_scores_equal_onnxruntimes(types: FileTypes) -> None:
    rows = np.stack(
        [r for r in (types.features(t.encode()) for t in (PYTHON * 3, JSON, C * 2, HTML * 4)) if r is not None]
    )
    session = onnxruntime.InferenceSession(str(files.model_file(files.MAGIKA)), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"bytes": rows})
    (got,) = types.model(bytes=rows).values()
    # a file that ends early has rows of equal values, where the model subtracts nearly equal sums: onnxruntime's own
    # scores are 4e-4 from those in float64, and move with the size of the batch
    np.testing.assert_allclose(nbx.to_numpy(got), expected, rtol=0, atol=1e-3)
    exact = [0.78223293, 0.20113941]
    np.testing.assert_allclose(nbx.to_numpy(got)[1, [87, 163]], exact, rtol=0, atol=2e-5)


def test_what_the_model_sees_of_a_file(types: FileTypes) -> None:
    row = types.features(b" \n\tabcdefgh\r\n ")
    assert row is not None
    assert row.dtype == np.int32
    # the start is stripped on its left only, the end on its right only
    assert bytes(row[:11].tolist()) == b"abcdefgh\r\n "
    assert row[11:1024].tolist() == [256] * 1013
    assert bytes(row[-11:].tolist()) == b" \n\tabcdefgh"
    assert row[1024:-11].tolist() == [256] * (1024 - 11)
    assert types.features(b"   abcdefg") is None
    long = bytes(i % 251 + 1 for i in range(10_000)).replace(b" ", b"x").replace(b"\n", b"x")
    seen = types.features(b"\n" * 5 + long + b" " * 5)
    assert seen is not None
    assert bytes(seen[:1024].tolist()) == long[:1024]
    assert bytes(seen[1024:].tolist()) == long[-1024:]
    # only the first block is looked at, however much white space it holds
    assert types.features(b" " * 5000 + b"text") is None


def test_a_file_read_in_blocks_gives_the_features_of_its_bytes(types: FileTypes, tmp_path: Path) -> None:
    for size in (8, 9, 1023, 1025, 4095, 4097, 9000):
        data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
        path = tmp_path / f"{size}"
        path.write_bytes(data)
        row = types.features(data)
        assert row is not None
        (expected,) = types.model(bytes=row[None]).values()
        (found,) = types.identify([path])
        assert found.score == float(nbx.to_numpy(expected).max())


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_sentences(device: str) -> None:
    model = Sentences(resolve_device(device))
    inputs = model.tokens(SENTENCES)
    assert inputs["input_ids"].shape == inputs["attention_mask"].shape
    assert inputs["input_ids"][0, 0] == 101  # [CLS]
    vectors = model.embed(inputs)
    matrix = nbx.to_numpy(model.similarity(vectors))
    session = onnxruntime.InferenceSession(str(files.model_file(files.MINILM)), providers=["CPUExecutionProvider"])
    (hidden,) = session.run(None, inputs)
    mask = inputs["attention_mask"][:, :, None]
    means = (hidden * mask).sum(1) / mask.sum(1)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            assert value == pytest.approx(cosine(means[i], means[j]), abs=1e-4)
    pairs = [matrix[0, 1], matrix[2, 3], matrix[4, 5]]
    others = [matrix[i, j] for i in range(6) for j in range(i) if i // 2 != j // 2]
    assert min(pairs) > 0.5 > 0.3 > max(others)


def test_default_files_are_this_repositorys() -> None:
    names = {p.name for p in default_files()}
    assert {"files.py", "pyproject.toml", "README.md"} <= names or "files.py" in names


def test_the_command(samples: dict[str, Path], capsys: pytest.CaptureFixture[str], device: str) -> None:
    paths = [str(samples[label]) for label in ("python", "json")]
    sentences = ["--sentence", "A dog barks.", "--sentence", "The hound is barking.", "--sentence", "Tax [law]."]
    assert main(["demo", *paths, *sentences, "--json", "--device", device]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [f["label"] for f in report["files"]] == ["python", "json"]
    assert report["similarity"][0][1] > 0.6 > report["similarity"][0][2]
    assert len(report["vectors_hash"]) == 16
    assert main(["demo", *paths, *sentences, "--device", device]) == 0
    shown = capsys.readouterr().out
    assert "Python source (python)" in shown
    assert "Tax [law]." in shown


def test_a_file_that_cannot_be_read_is_one_line_and_the_rest_goes_on(
    samples: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "no/such/file", str(samples["python"]), "--sentence", "One.", "--json"]) == 2
    captured = capsys.readouterr()
    assert "nbxtensor: no/such/file: No such file or directory" in captured.err.splitlines()
    assert [f["label"] for f in json.loads(captured.out)["files"]] == ["python"]


def test_damaged_model_files_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files.FILES:
        (tmp_path / name).write_bytes(b"damaged")
    monkeypatch.setenv("NBX_MODELS_DIR", str(tmp_path))
    assert main(["demo", str(tmp_path / files.MAGIKA)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "magika.onnx is not an ONNX file, or it is damaged" in line
