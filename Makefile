# Everything runs in .venv; `make setup` makes it and does nothing when it is up to date.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup quickstart test check bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e ".[dev]"
	touch $@

quickstart: setup
	$(BIN)/hwbench quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

clean:
	rm -rf .venv .hwbench build dist
