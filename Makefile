# The house's commands. `make` alone lists them; each target that needs the environment makes it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINNED := $(VENV)/.pinned
STAMP := $(VENV)/.installed
PINS := requirements/runtime.txt requirements/dev.txt
UV_PIN := uv==0.13.8

# Processes that share the tests; two, because the smallest machine we promise has two cores.
WORKERS ?= 2
FAULT_WORKERS ?= 2
SEED ?= 0
N ?= 200
LIFE ?=

.PHONY: help setup check style types layers dead test test-faults demo sim chaos bench docs wheels conformance lock clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv from the hashed requirement files

# A stamp is written last: an interrupted installation starts again from an empty environment.
$(PINNED): $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "steersman needs Python 3.11 or newer; $(PYTHON) is older. Next: make setup PYTHON=python3.12" >&2; exit 2; }
	@echo "setup: making $(VENV) (the first time takes minutes: jax and its companions are large)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes $(addprefix -r ,$(PINS))
	@touch $@

# The plain .pth form (compat): no finder code runs when `ctl` starts.
$(STAMP): $(PINNED) pyproject.toml
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index \
	  --config-settings editable_mode=compat --editable .
	@touch $@

check: style types layers dead ## Style, types, layering and dead code: what the tests run first

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: setup
	$(BIN)/basedpyright --pythonpath $(BIN)/python

layers: setup
	$(BIN)/lint-imports --no-cache

dead: setup
	$(BIN)/vulture

test: check ## All checks, then unit, property, simulation and end-to-end tests
	$(BIN)/python -m pytest tests -n $(WORKERS) -m "not faults"

test-faults: setup ## The longer fault tests, with real processes
	$(BIN)/python -m pytest tests -n $(FAULT_WORKERS) -m faults

demo: setup ## A small run through gate, crash, slow-down and re-plan to its end in time, in runs/demo
	@$(BIN)/python -m tools.set_aside runs/demo
	@$(BIN)/python -m tools.demo

sim: setup ## Simulate N runs under faults, from SEED on: make sim SEED=7 N=1000
	$(BIN)/python -m tests.sim --seed $(SEED) --count $(N)

chaos: N = 10000
chaos: setup ## Every fault in every phase, pairs of faults, and chance: make chaos SEED=7 N=10000
	$(BIN)/python -m tests.sim --chaos --seed $(SEED) --count $(N) --life "$(LIFE)"

bench: setup ## Measure the figures that docs/figures.md quotes
	$(BIN)/python -m bench

docs: setup ## Write the generated pages under docs/ anew
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.timeline
	$(BIN)/python -m tests.sim.truth
	$(BIN)/python -m tests.sim.mutants

# build/lib is emptied first: setuptools would pack modules from there that are long gone.
wheels: setup ## Build dist/*.whl, and try it without JAX in a fresh environment elsewhere
	@rm -rf build/lib build/bdist.* dist
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .
	@$(BIN)/python -m tools.wheel_trial

conformance: setup ## Try a trainer of yours: make conformance TRAINER="python /path/train.py" [ARGS=-x]
	@$(BIN)/python -m tests.conformance --trainer "$(TRAINER)" $(ARGS)

lock: ## Resolve requirements/*.in anew into the hashed files
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet $(UV_PIN)
	for name in runtime dev; do (cd requirements && ../build/lock/bin/uv pip compile --quiet --universal \
	  --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --no-emit-find-links $$name.in -o $$name.txt); done

clean: ## Remove the environment and caches; runs/ stays, it is your work
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './runs/*' -prune -exec rm -rf {} +
