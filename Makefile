# Everything runs in .venv, made on the first call and reused after it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo
# One thread a process: parallel processes beat parallel threads on small problems.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help setup demo test lint bench clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

setup: $(STAMP)  ## Make .venv and install everything into it

lint: $(STAMP)  ## Style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)  ## All tests, the slow ones included
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

clean:  ## Remove what the demo wrote and the caches
	rm -rf $(DEMO) .mypy_cache .ruff_cache .pytest_cache .hypothesis
