# Every command a person needs; `make help` lists them. Needs make and Python 3.11 or later, nothing else.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := planner api profiles
LINTED := $(SOURCES) $(wildcard tests benchmarks examples)
PYTEST := $(BIN)/python -m pytest

# One thread for each process: the tests and the demo start several ranks on few cores.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv demo serve test check lint format test-system soak

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

venv: $(STAMP)  ## make the virtual environment and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: '$(PYTHON)' not found; this project needs Python 3.11 or later (make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $$($(PYTHON) --version) found, Python 3.11 or later needed (make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "error: '$(PYTHON) -m venv' failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(STAMP)  ## profile, ask for a plan, train 20 steps on 2 ranks, compare predicted with measured
	$(BIN)/python -m examples.demo

serve: $(STAMP)  ## start the HTTP service on this machine
	$(BIN)/planner serve

lint: $(STAMP)  ## format check, lint, types
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/ruff check $(LINTED)
	$(BIN)/mypy

format: $(STAMP)  ## rewrite the sources in the one format
	$(BIN)/ruff format $(LINTED)
	$(BIN)/ruff check --fix $(LINTED)

test: lint  ## lint and every test that needs only what pip installs
	$(PYTEST) -n $(JOBS)

check: test  ## the same, under the name that a change is checked by

test-system: $(STAMP)  ## tests that need more than pip installs
	@$(PYTEST) -m system || { code=$$?; test $$code -eq 5 && echo "there are no system tests yet" || exit $$code; }

soak: $(STAMP)  ## tests that run for minutes
	@$(PYTEST) -m soak --timeout 3600 || { code=$$?; test $$code -eq 5 && echo "there are no soak tests yet" || exit $$code; }
