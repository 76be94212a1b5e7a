"""Pyright, strict, on everything but the kernels: ``python tools/typecheck.py [FILES...]``.

A function under ``@kernel`` is written in Triton's language, where a parameter has no Python type, so what pyright says
about its lines is left out. Pyright cannot be told so itself.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def kernel_lines(path: Path) -> set[int]:
    """Numbers (from 1) of the lines of `path` that belong to a function decorated with ``kernel``."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and any(_is_kernel(d) for d in node.decorator_list):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _is_kernel(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Name) and target.id == "kernel"


def main(files: list[str]) -> int:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(done.stdout, done.stderr, sep="\n")
        return done.returncode
    report: dict[str, Any] = json.loads(done.stdout)
    cache: dict[str, set[int]] = {}
    errors = 0
    for entry in report["generalDiagnostics"]:
        file, line = entry["file"], entry["range"]["start"]["line"] + 1
        if file not in cache:
            cache[file] = kernel_lines(Path(file))
        if line not in cache[file]:
            errors += 1
            print(f"{file}:{line}: {entry['severity']}: {entry['message']} ({entry.get('rule', 'syntax')})")
    print(f"pyright: {errors} findings in {report['summary']['filesAnalyzed']} files")
    return int(errors > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
