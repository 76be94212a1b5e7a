"""``nbxtensor demo``: two real models on real input."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

import nbxtensor
from nbxtensor.base.text import counted
from nbxtensor.cli.compiling import compile_kernels, naming_the_file, use_packs
from nbxtensor.device.protocol import Device
from nbxtensor.onnx.zoo.files import MAGIKA, MINILM, model_file
from nbxtensor.onnx.zoo.filetypes import BATCH, FileType, FileTypes
from nbxtensor.onnx.zoo.sentences import Sentences
from nbxtensor.program.digest import digest
from nbxtensor.tensor.create import to_numpy
from nbxtensor.tensor.defaults import resolve_device

SENTENCES = (
    "The cat is sleeping on the sofa.",
    "A kitten naps on the couch.",
    "The stock market fell sharply today.",
    "Share prices dropped in heavy trading.",
    "How do I bake sourdough bread?",
    "What is a good recipe for a crusty loaf?",
)


def _say(text: str) -> None:
    click.echo(text, err=True)


def default_files() -> list[Path]:
    """The files of the repository around this package or the current folder, else of the installed package."""
    package = Path(nbxtensor.__file__).resolve().parent
    for folder in (package, Path.cwd()):
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True
            )
            root = Path(done.stdout.strip())
            listed = subprocess.run(
                ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        files = [root / name for name in listed.stdout.split("\0") if name]
        files = [f for f in files if f.is_file()]
        if files and package.is_relative_to(root):
            return files
    return sorted(f for f in package.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def _shown(path: str) -> str:
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def name_files(device: Device, paths: Sequence[Path]) -> tuple[list[FileType], list[str], float]:
    """Types of the files, one line per file that cannot be read, and the seconds that the model took."""
    readable: list[Path] = []
    complaints: list[str] = []
    for path in paths:
        try:
            if not path.is_dir():
                path.open("rb").close()
            readable.append(path)
        except OSError as error:
            complaints.append(f"{path}: {error.strerror}")
    types = FileTypes(device, _say)
    last = len(readable) % BATCH
    for batch in ([BATCH] if len(readable) >= BATCH else []) + ([last] if last else []):
        shapes = {"bytes": (batch, types.input_shape[1])}
        with naming_the_file(types.model, shapes, device, str(model_file(MAGIKA))):
            compile_kernels(types.model.specialize(shapes, device).jobs, device)
    started = perf_counter()
    found = list(types.identify(readable))
    return found, complaints, perf_counter() - started


def compare_sentences(device: Device, sentences: Sequence[str]) -> tuple[Any, str, float]:
    """The matrix of similarities, the hash of the vectors' bits, and the seconds that the model took."""
    model = Sentences(device, _say)
    inputs = model.tokens(sentences)
    shapes = {name: array.shape for name, array in inputs.items()}
    with naming_the_file(model.model, shapes, device, str(model_file(MINILM))):
        compile_kernels(model.model.specialize(shapes, device).jobs, device)
    started = perf_counter()
    vectors = model.embed(inputs)
    matrix = to_numpy(model.similarity(vectors))
    return matrix, digest(to_numpy(vectors)), perf_counter() - started


def _print_files(found: Sequence[FileType], seconds: float) -> None:
    from rich.console import Console  # drawn only when no JSON was asked for
    from rich.table import Table

    table = Table(header_style="bold", title=f"Types of {counted(len(found), 'file')}, by magika", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("type", overflow="fold")
    table.add_column("score", justify="right")
    for each in found:
        table.add_row(_shown(each.path), f"{each.description or each.label} ({each.label})", f"{each.score:.3f}")
    console = Console()
    console.print(table)
    console.print(f"{seconds:.2f} s\n", highlight=False)


def _print_sentences(sentences: Sequence[str], matrix: "np.ndarray[Any, Any]", seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold", title="How alike sentences are, by all-MiniLM-L6-v2", title_justify="left")
    table.add_column("")
    table.add_column("sentence", overflow="fold")
    for i in range(len(sentences)):
        table.add_column(str(i + 1), justify="right")
    for i, sentence in enumerate(sentences):
        cells: list[str] = []
        for j, value in enumerate(matrix[i]):
            style = "bold green" if i != j and value >= 0.5 else "dim" if value < 0.2 else ""
            cells.append(f"[{style}]{value:.2f}[/]" if style else f"{value:.2f}")
        table.add_row(str(i + 1), sentence.replace("[", r"\["), *cells)
    console = Console()
    console.print(table)
    console.print(f"{seconds:.2f} s", highlight=False)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--sentence", "sentences", multiple=True, help="A sentence to compare (give several).")
@click.option("--device", default=None, help="Where to run: cpu, cuda, cuda:1.")
@click.option(
    "--pack", "packs", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="A pack of kernels to use."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    files: tuple[Path, ...], sentences: tuple[str, ...], device: str | None, packs: tuple[Path, ...], as_json: bool
) -> int:
    """Name the types of FILES (this repository's if none are given), and tell how alike sentences are.

    \b
    Examples:
      nbxtensor demo report.pdf picture.bin
      nbxtensor demo --sentence "A cat sleeps." --sentence "A kitten naps." --json
    """
    use_packs(packs)
    target = resolve_device(device)
    texts = sentences or SENTENCES
    found, complaints, file_seconds = name_files(target, files or default_files())
    for line in complaints:
        print(f"nbxtensor: {line}", file=sys.stderr)
    if not as_json:
        _print_files(found, file_seconds)
    matrix, vectors_hash, sentence_seconds = compare_sentences(target, texts)
    if as_json:
        report = {
            "device": target.name,
            "target": str(target.target),
            "files": [
                {"path": _shown(f.path), "label": f.label, "description": f.description, "group": f.group}
                | {"mime": f.mime, "score": f.score}
                for f in found
            ],
            "sentences": list(texts),
            "similarity": matrix.astype(float).tolist(),
            "vectors_hash": vectors_hash,
            "seconds": {"files": file_seconds, "sentences": sentence_seconds},
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _print_sentences(texts, matrix, sentence_seconds)
    return 2 if complaints else 0
