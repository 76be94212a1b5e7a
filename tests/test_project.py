"""Rules of the code base: layers, imports, sizes, documents that keep step with the tree."""

import ast
import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/nbxtensor"
MODULES = sorted(PACKAGE.rglob("*.py"))
PYTHON_FILES = [*MODULES, *(p for d in ("tests", "bench", "tools") for p in sorted((ROOT / d).rglob("*.py")))]
LINES_MAX = 400

# What an installation without extras does not have, or what is too slow to import before it is needed.
LATE = {"triton", "llvmlite", "onnx", "cuda", "rich", "click", "ml_dtypes", "tokenizers", "safetensors", "msgspec"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Module name, relative level and whether it runs with the file's own import, of each import in `path`."""
    tree = ast.parse(path.read_text())
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_type_checking(function)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, 0, id(node) not in inner
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level, id(node) not in inner


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def python(code: str, tmp_path: Path) -> str:
    """Run `code` in a fresh interpreter that imports the package from src; returns its output."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Layers


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120)


def test_imports_go_down_only() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


def test_an_import_that_goes_up_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src/nbxtensor/base/errors.py").open("a") as file:
        file.write("import nbxtensor.kernel\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "Imports go down only BROKEN" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_of_one_module(path: Path) -> None:
    for module, level, at_top in imports(path):
        top = module.split(".")[0]
        assert level == 0, f"relative import of {module}"
        assert top != "torch"
        in_cli = "cli" in path.relative_to(PACKAGE).parts
        assert module != "nbxtensor" or in_cli or path == PACKAGE / "__init__.py", (
            "the root package is above all layers"
        )
        assert not at_top or top not in LATE or in_cli, f"{module} is imported at the top"


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=\[;]", r)[0].strip().replace("-", "_") for r in requirements}

    extras = {extra: names(rows) for extra, rows in project["optional-dependencies"].items()}
    declared = names(project["dependencies"]).union(*(extras[e] for e in ("compile", "cuda", "onnx", "cli")))
    declared = {"cuda" if d == "cuda_bindings" else d for d in declared}
    used = {m.split(".")[0] for p in MODULES for m, _, _ in imports(p)} - set(sys.stdlib_module_names) - {"nbxtensor"}
    assert used <= declared
    assert "torch" not in " ".join(str(rows) for rows in extras.values())


def test_of_cuda_only_the_bindings_are_used() -> None:
    """The extra ``cuda`` brings cuda-bindings and nothing else, so nothing else may be imported, not even by name."""
    named = re.compile(r"""["'](cuda\.(?!py)[a-z_.]+)["']""")
    used = {module for path in MODULES for module in named.findall(path.read_text())}
    used |= {m for path in MODULES for m, _, _ in imports(path) if m.split(".")[0] == "cuda"}
    assert used == {"cuda.bindings", "cuda.bindings.driver"}


# Import of the package


def test_import_brings_none_of_the_heavy_packages(tmp_path: Path) -> None:
    loaded = python("import sys, nbxtensor; print(*{m.split('.')[0] for m in sys.modules})", tmp_path)
    assert not (LATE | {"torch"}) & set(loaded.split())


def test_every_module_imports_without_the_extras(tmp_path: Path) -> None:
    code = f"""
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {LATE!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import nbxtensor
for module in pkgutil.walk_packages(nbxtensor.__path__, "nbxtensor."):
    if not module.name.startswith("nbxtensor.cli."):
        importlib.import_module(module.name)
"""
    python(code, tmp_path)


def test_import_takes_at_most_40_ms_beyond_numpy(tmp_path: Path) -> None:
    code = "import time, numpy; t = time.perf_counter(); import nbxtensor; print(time.perf_counter() - t)"
    python(code, tmp_path)  # fills the bytecode cache
    assert min(float(python(code, tmp_path)) for _ in range(7)) < 0.040


# Files


@pytest.mark.parametrize("path", PYTHON_FILES, ids=name)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)


def test_files_have_a_usual_size() -> None:
    assert statistics.median(len(p.read_text().splitlines()) for p in MODULES if p.stat().st_size) <= 200


# Documents


def paths_in(text: str) -> list[str]:
    """Paths of the repository that `text` names between backticks."""
    found = re.findall(
        r"`((?:src|tests|bench|tools|docs|\.ci)/[^`\s]*|[A-Z][A-Za-z]+(?:\.md|\.toml)?|pyproject\.toml)`", text
    )
    return [f for f in found if "/" in f or "." in f or f == "Makefile"]


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_paths_in_documents_exist(path: Path) -> None:
    text = path.read_text()
    missing = [
        p
        for p in paths_in(text)
        if not {"NNN", "NAME"} & set(re.split(r"\W|-", p)) and not list(ROOT.glob(p.rstrip("/")))
    ]
    links = [t for t in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (path.parent / t).exists()]
    assert not missing
    assert not links


def test_the_architecture_page_names_every_package() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    packages = [name(p.parent) + "/" for p in MODULES if p.name == "__init__.py" and p.parent != PACKAGE]
    assert [p for p in packages if p not in text] == []


def test_decisions_are_numbered_and_listed() -> None:
    folder = ROOT / "docs/decisions"
    files = sorted(p.name for p in folder.glob("*.md") if p.name != "README.md")
    assert all(re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", f) for f in files)
    assert len({f[:3] for f in files}) == len(files)
    index = (folder / "README.md").read_text()
    assert [f for f in files if f"({f})" not in index] == []
