# `make` alone prints the targets. Everything runs in an environment that make builds itself (.venv); to use one that
# exists, name its interpreter: make lint PY=/path/to/bin/python
PYTHON ?= python3
VENV ?= .venv
BENCH ?= .venv-bench
TRITON39 ?= .venv-triton39
SWEEP39 ?= .venv39
WORKERS ?= 2
OUT ?= bench/results
DEVICE ?= cpu

ifdef PY
READY :=
export PYTHONPATH := src
else
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
endif
BIN := $(dir $(PY))

# The demonstration's models are kept beside the sources, for tests and benchmarks too.
export NBX_MODELS_DIR ?= $(CURDIR)/.models

# OPENBLAS_CORETYPE slows NumPy where it is set; a benchmark against NumPy runs without it.
CLEAN_ENV := env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE
NEW_ENV = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")' \
	&& $(PYTHON) -m venv --clear

.DEFAULT_GOAL := help
.PHONY: help env test demo lint lint-ruff lint-format lint-types lint-layers format test-gpu test-triton39 sweep sweep39 \
	limits special invariance pack wheel bench-env bench clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY)  ## make .venv with everything that tests and tools need (no torch)

$(VENV)/.installed: pyproject.toml
	$(NEW_ENV) $(VENV)
	$(VENV)/bin/python -m pip install -q -e '.[dev]'
	@touch $@

test: lint  ## lint, then all tests that need no GPU
	$(PY) -m pytest -n $(WORKERS) --dist worksteal

demo: $(READY)  ## the two real models on real input (FILES="a b" names the files to look at)
	$(PY) -m nbxtensor.cli demo $(FILES)

lint: lint-ruff lint-format lint-types lint-layers  ## ruff, pyright (strict), layers

lint-ruff: $(READY)
	$(PY) -m ruff check .

lint-format: $(READY)
	$(PY) -m ruff format --check .

lint-types: $(READY)
	$(PY) tools/typecheck.py

lint-layers: $(READY)
	$(BIN)lint-imports --no-logo

format: $(READY)  ## let ruff format and mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

test-gpu: $(READY)  ## all tests on the GPU of this machine (needs the extra cuda)
	$(PY) -m pytest --device cuda

$(TRITON39)/.installed: pyproject.toml
	$(NEW_ENV) $(TRITON39)
	$(TRITON39)/bin/python -m pip install -q -e '.[dev]' 'triton>=3.9,<3.10'
	@touch $@

test-triton39: $(TRITON39)/.installed  ## all tests with the newest Triton that is supported
	$(TRITON39)/bin/python -m pytest -n $(WORKERS) --dist worksteal

# What the wheel ships. It is no part of the repository: it changes with every kernel, and making it takes compilers.
PACK := build/packs/default.nbxpack

pack: $(READY)  ## make the pack that the wheel ships, in build/packs (20 minutes on 2 cores from an empty cache)
	@mkdir -p $(dir $(PACK))
	NBX_TABLES=$(CURDIR)/build/packs/none $(PY) -m nbxtensor.cli pack --arch x86-64-v3,sm_80,sm_90 --common --demo -o $(PACK)

wheel: pack  ## the wheel with its pack, in dist
	@test $$(stat -c %s $(PACK)) -le 10000000 || { echo "$(PACK) has more than 10 MB"; exit 1; }
	$(PY) -m pip wheel -q --no-deps --wheel-dir dist .
	$(PY) -m zipfile -l $$(ls -t dist/*.whl | head -1) | grep -q nbxtensor/packs/default.nbxpack
	@ls -l $$(ls -t dist/*.whl | head -1)

# The tools read the samples of the tests.
TOOL := env PYTHONPATH=src:tests:.

sweep: $(READY)  ## compile every kernel for every target; log in bench/results (SWEEP="--all" repeats what is logged)
	$(TOOL) $(PY) -m tools.sweep $(SWEEP)

limits: $(READY)  ## list what kernels need beyond a restricted device, in docs/targets.md
	$(TOOL) $(PY) -m tools.limits

special: $(READY)  ## write docs/special-values.md from what the operators declare
	$(TOOL) $(PY) -m tools.special

invariance: $(READY)  ## a row has the same bits alone and among others, in every setting, 100 times (DEVICE=cuda on a GPU)
	$(TOOL) $(PY) -m tools.invariance --device $(DEVICE) --json $(OUT)/invariance_$(DEVICE).json

$(SWEEP39)/.installed: tools/triton39.txt
	$(NEW_ENV) $(SWEEP39)
	$(SWEEP39)/bin/python -m pip install -q -r tools/triton39.txt
	@touch $@

sweep39: $(SWEEP39)/.installed  ## the newest Triton: one of each kernel compiles for GPUs, the CPU's bits are the golden ones
	$(TOOL) $(SWEEP39)/bin/python -m tools.sweep --least --targets sm_90,sm_100,gfx942 --workers $(WORKERS)
	$(TOOL) NBX_COMPILE_WORKERS=$(WORKERS) $(SWEEP39)/bin/python -m tools.golden_sample

$(BENCH)/.installed: pyproject.toml
	$(NEW_ENV) $(BENCH)
	$(BENCH)/bin/python -m pip install -q -e '.[compile,onnx,cli]' -r bench/requirements.txt
	@touch $@

bench-env: $(BENCH)/.installed  ## make .venv-bench: nbxtensor beside torch and onnxruntime

bench: bench-env  ## measure on the CPU against the peers; tables here, JSON in bench/results
	$(CLEAN_ENV) $(BENCH)/bin/python -m bench.import_time --json $(OUT)/import_time.json
	$(CLEAN_ENV) $(BENCH)/bin/python -m bench.ops_cpu --json $(OUT)/ops_cpu.json
	$(CLEAN_ENV) $(BENCH)/bin/python -m bench.models_cpu --json $(OUT)/models_cpu.json

clean:  ## remove what make and the tools left behind, environments included
	rm -rf .venv .venv-bench .venv-triton39 .venv39 build dist .models .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
