VENV ?= .venv
PY := $(VENV)/bin/python

$(VENV)/.installed: pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install -q -e '.[dev]'
	touch $@

.PHONY: test
test: $(VENV)/.installed
	$(PY) -m pytest -n 2
