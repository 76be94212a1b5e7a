"""Puts the pack that `make pack` made into the wheel, if it was made from the sources that the wheel holds."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACK = "build/packs/default.nbxpack"


class PackHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pack = Path(self.root, PACK)
        if version == "editable" or not pack.is_file():
            return
        source = Path(self.root, "src")
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(source))
        from nbxtensor.compiler.pack_file import Pack  # of the standard library alone
        from nbxtensor.compiler.sources import sources_hash

        if Pack(pack).manifest["sources"] != sources_hash(source / "nbxtensor"):
            self.app.display_warning(f"{PACK} was made from other sources and is left out; make it again: make pack")
            return
        place = PACK if self.target_name == "sdist" else "nbxtensor/packs/default.nbxpack"
        build_data["force_include"][str(pack)] = place
