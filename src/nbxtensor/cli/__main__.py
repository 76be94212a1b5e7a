"""The command line: ``nbxtensor VERB ...`` or ``python -m nbxtensor.cli VERB ...``."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        from nbxtensor.cli.app import run  # click, which only the command line needs
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"nbxtensor: the command line needs {error.name}; install nbxtensor[cli]", file=sys.stderr)
        return 2
    return run(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
