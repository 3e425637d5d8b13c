# Everything runs in .venv, made on the first call and reused after it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# sMRIPrep, on top of .venv: its dependencies are not ours.
HOST := .venv-smriprep
HOST_STAMP := $(HOST)/.installed
DEMO := demo
# Programs that tests and benchmarks compare with. Their own pins are older than our packages.
REFERENCES := neuroCombat==0.2.12 neuroHarmonize==2.5.2 opnmf==0.0.2 SurrealGAN==0.1.1
# Several processes with one thread each beat one process with several threads on small problems.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# How the scripts of the containers end where a tool is missing; they have said so loudly.
SKIPPED := 77

DOCS_STAMP := $(VENV)/.docs
# The oldest supported versions. The oldest torch for CPUs is not on PyPI: CI gives its index and version.
OLDEST := .venv-oldest
OLDEST_STAMP := $(OLDEST)/.installed
OLDEST_TORCH ?= 2.13.0
OLDEST_TESTS := tests/model tests/harmonization tests/stats tests/cohort tests/rindices tests/test_estimators.py

.PHONY: help setup demo test coverage test-oldest lint docs bench paper image sif test-image test-slurm clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps $(REFERENCES)
	touch $(STAMP)

$(HOST_STAMP): $(STAMP) tests/workflows/smriprep.txt
	test -x $(HOST)/bin/python || $(PYTHON) -m venv $(HOST)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
	    > $$($(HOST)/bin/python -c 'import site; print(site.getsitepackages()[0])')/venv.pth
	$(HOST)/bin/pip install --quiet --constraint constraints.txt --requirement tests/workflows/smriprep.txt
	touch $(HOST_STAMP)

setup: $(STAMP)  ## Make .venv and install everything into it

demo: $(STAMP)  ## Heads to volumes, a study to R-indices, maps and a report; all simulated, beside the truth
	$(BIN)/python docs/demo.py $(DEMO)

lint: $(STAMP)  ## Style, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

test: $(STAMP) $(HOST_STAMP)  ## All tests, the slow ones included
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

# Without the slow tests, since tracing branches slows Python down (3.11 has no faster way).
coverage: $(STAMP)  ## Branch coverage of the fast tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadscope -q -m 'not slow' --cov --cov-report=term

$(OLDEST_STAMP): pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct \
	    'torch==$(OLDEST_TORCH)' --editable .
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python pytest pytest-xdist hypothesis
	touch $(OLDEST_STAMP)

test-oldest: $(OLDEST_STAMP)  ## Fast tests of tables and models with the oldest supported dependencies
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n 2 -q -m 'not slow' $(OLDEST_TESTS)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $(DOCS_STAMP)

# The gallery runs its scripts, one of them with sMRIPrep.
docs: $(DOCS_STAMP) $(HOST_STAMP)  ## The documentation as pages to read, in build/docs; a dead link is an error
	$(ONE_THREAD) PATH=$(abspath $(BIN)):$$PATH $(HOST)/bin/python -m sphinx --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs
	@echo 'Open build/docs/index.html.'

bench: $(STAMP)  ## Speed beside the alternatives; results go to benchmarks/results
	$(BIN)/python benchmarks/speed.py

paper: $(STAMP)  ## The paper's experiments in a quick setting (docs/paper.md tells of the full one)
	$(ONE_THREAD) $(BIN)/python benchmarks/paper.py $(DEMO)/paper --quick

image:  ## Build the image, with docker or podman
	singularity/build_image.sh || [ $$? = $(SKIPPED) ]

sif: image  ## Turn the image into an Apptainer (Singularity) image
	singularity/build_sif.sh || [ $$? = $(SKIPPED) ]

test-image: $(STAMP)  ## Build both images and run both levels in them, without network
	tests/containers/run.sh test-image test_image.sh test_sif.sh

test-slurm: $(STAMP)  ## Participants and group through a Slurm of one node
	tests/containers/run.sh test-slurm test_slurm.sh

clean:  ## Remove what the demo wrote and the caches
	rm -rf $(DEMO) .mypy_cache .ruff_cache .pytest_cache .hypothesis
