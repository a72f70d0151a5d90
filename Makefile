# Everything runs in .venv. `make setup` makes it, does nothing when it is up to date, and runs again when
# pyproject.toml or constraints.txt change; `make quickstart` and `make test` do it themselves.
# `make setup LOCKED=1` makes it anew and takes only files whose SHA-256 stands in .ci/locks;
# `make lock` writes those two for the versions in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -P -m pip --quiet --disable-pip-version-check --no-input
# What the locks are written with.
UV := uv==0.13.9
LOCK := build/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
  --no-header --no-annotate

define NEEDS_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hwbench needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) has no venv; install it: apt-get install python3-venv" >&2; exit 1; }
endef

# Tests and the quickstart start hundreds of processes that load the same modules: what Python has compiled is kept,
# whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lock quickstart test test-long check check-dependencies docs clean

ifeq ($(LOCKED),1)
setup: .venv/.locked
else
setup: $(STAMP)
endif

$(STAMP): pyproject.toml constraints.txt
	$(NEEDS_PYTHON)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "installing hwbench and what it needs into .venv: about 6 GB and three minutes the first time ..."
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(PIP) install --progress-bar off -e ".[dev]"
	@touch $@

# What is there already would be taken as it is: hence --clear. Nothing builds in isolation, where pip would fetch the
# build backends of source packages without looking at hashes; they come first instead.
.venv/.locked: pyproject.toml constraints.txt .ci/locks/build.lock .ci/locks/requirements.lock
	$(NEEDS_PYTHON)
	@$(PYTHON) -m venv --clear .venv
	@echo "installing what .ci/locks names into .venv: about 6 GB ..."
	@$(PIP) install --progress-bar off --require-hashes --no-deps -r .ci/locks/build.lock
	@$(PIP) install --progress-bar off --require-hashes --no-deps --no-build-isolation -r .ci/locks/requirements.lock
	@$(PIP) install --no-index --no-deps --no-build-isolation -e .
	@touch $(STAMP) $@

lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check "$(UV)"
	$(LOCK) --extra dev -c constraints.txt -o .ci/locks/requirements.lock pyproject.toml
	printf '%s\n' editables hatchling setuptools wheel | $(LOCK) -c constraints.txt -o .ci/locks/build.lock -

quickstart: setup
	$(BIN)/hwbench quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_readme.py

# Three at a time on two cores: tests wait for devices and processes for a quarter of their time. Threads of OpenMP that
# wait sleep meanwhile instead of spinning.
test: check
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 3 --dist worksteal -m "not long" --ignore tests/test_layers.py --ignore tests/test_readme.py

# Into build/site; a warning is an error. Asks no network, and the pages ask none.
docs: setup
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet -f .ci/docs/mkdocs.yml

# Licences and known vulnerabilities of what is installed; asks the package index (docs/licences.md).
check-dependencies: setup
	$(BIN)/python .ci/dependencies/check.py

test-long: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

clean:
	rm -rf .venv .hwbench build dist
