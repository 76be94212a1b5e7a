"""Makes a failing random kernel small: drops statements as long as it still fails.

``PYTHONPATH=src:tests python tests/fuzz_shrink.py SEED`` prints what is left and its TTIR.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fuzz_program import Branch, Case, Loop

Body = list


def bodies(body: Body) -> Iterator[Body]:
    """`body` and every body inside it."""
    yield body
    for statement in body:
        if isinstance(statement, Loop):
            yield from bodies(statement.body)
        elif isinstance(statement, Branch):
            yield from bodies(statement.then)
            yield from bodies(statement.otherwise)


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Drop statements from `case`, in place, while `fails` says that it still fails."""
    progress = True
    while progress:
        progress = False
        for body in list(bodies(case.body)):
            for i in reversed(range(len(body))):
                if i >= len(body):
                    continue
                removed = body[i]
                inner = getattr(removed, "body", None) or getattr(removed, "then", None) or []
                for replacement in ([], list(inner)) if inner else ([],):
                    body[i : i + 1] = replacement
                    if fails(case):
                        progress = True
                        break
                    body[i : i + len(replacement)] = [removed]
    return case


def main(seed: int) -> None:
    from fuzz_generate import Generator
    from nbxtensor.compiler.ttir import ttir
    from nbxtensor.device import get
    from test_fuzz_cpu import differences, load_kernel, run

    def outcome(case: Case) -> str:
        try:
            expected = case.expected()
            text = ttir(load_kernel(case, folder), case.arguments, {})
        except Exception:
            return ""
        try:
            return "differs" if differences(run(case, get("cpu"), folder), expected) else ""
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:40]}" if text else ""

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = Generator(seed).case()
        wanted = outcome(case)
        if not wanted:
            print("it does not fail")
            return
        case = shrink(case, lambda c: outcome(c) == wanted)
        print(case.source[case.source.index("@kernel\ndef fuzz_") :])
        print(ttir(load_kernel(case, folder), case.arguments, {}))
        print("grid", case.grid, case.scalars)
        try:
            print(*differences(run(case, get("cpu"), folder), case.expected()), sep="\n")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
