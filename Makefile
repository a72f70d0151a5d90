# Everything runs in .venv. `make setup` makes it, does nothing when it is up to date, and runs again when
# pyproject.toml or constraints.txt change; `make quickstart` and `make test` do it themselves.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup quickstart test test-long check check-dependencies clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hwbench needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) has no venv; install it: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "installing hwbench and what it needs into .venv: about 6 GB and three minutes the first time ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --progress-bar off \
	  -c constraints.txt -e ".[dev]"
	@touch $@

quickstart: setup
	$(BIN)/hwbench quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_readme.py

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" --ignore tests/test_layers.py --ignore tests/test_readme.py

# Licences and known vulnerabilities of what is installed; asks the package index (docs/licences.md).
check-dependencies: setup
	$(BIN)/python dependencies/check.py

test-long: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

clean:
	rm -rf .venv .hwbench build dist
