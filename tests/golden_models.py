"""The bits harness for whole models: both demonstration models on fixed inputs.

As a program it takes their golden bits on a GPU:

    PYTHONPATH=src python tests/golden_models.py OUT.json [--device cuda]
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import golden_cases
import nbxtensor as nbx
from nbxtensor.onnx.zoo.files import MAGIKA, MINILM, model_file

Inputs = dict[str, np.ndarray]


def cases() -> Iterator[tuple[str, str, Inputs]]:
    """Name, model and inputs, made by arithmetic alone so that they are the same everywhere."""
    for batch, length, kept in ((1, 128, 128), (3, 17, 17), (2, 33, 20)):
        ids = 1000 + (np.arange(batch * length, dtype=np.int64) * 7919 % 28000).reshape(batch, length)
        mask = (np.arange(length) < kept).astype(np.int64) * np.ones((batch, 1), np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        yield f"MiniLM [{batch}, {length}], {kept} kept", MINILM, inputs
    for batch in (1, 3):
        text = (np.arange(batch * 2048, dtype=np.int64) * 131 % 257).astype(np.int32).reshape(batch, 2048)
        yield f"magika [{batch}, 2048]", MAGIKA, {"bytes": text}


def bits(device: str) -> dict[str, str]:
    """Hash of all outputs of each case on `device`."""
    found: dict[str, str] = {}
    for name, file, inputs in cases():
        model = nbx.onnx.load(str(model_file(file)))
        outputs = model(**{k: nbx.asarray(v, device=device) for k, v in inputs.items()})
        found[name] = golden_cases.bits_hash([np.asarray(o.to_device("cpu")) for o in outputs.values()])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", default=None, help="commit to record where the tree has no .git")
    options = parser.parse_args()
    record = golden_cases.facts(options.commit) | {"cases": bits(options.device)}
    options.out.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
    print(f"{len(record['cases'])} cases written to {options.out}")


if __name__ == "__main__":
    main()
