"""Examples in the documents and docstrings run as they stand."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import nbxtensor as nbx

ROOT = Path(__file__).parents[1]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [m.name for m in pkgutil.walk_packages(nbx.__path__, "nbxtensor.") if "__main__" not in m.name]


def run(test: doctest.DocTest) -> None:
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_in_documents(path: Path) -> None:
    text = re.sub(r"^```.*$", "", path.read_text(), flags=re.MULTILINE)  # a closing fence is no output
    run(doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0))


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    loaded = importlib.import_module(module)
    for test in doctest.DocTestFinder(exclude_empty=True).find(loaded, globs={"nbx": nbx}):
        run(test)
