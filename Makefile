# Everything runs in .venv, made on the first call and reused after it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo
# Programs that tests and benchmarks compare with. Their own pins are older than our packages.
REFERENCES := neuroCombat==0.2.12 neuroHarmonize==2.5.2 opnmf==0.0.2 SurrealGAN==0.1.1
# Several processes with one thread each beat one process with several threads on small problems.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: help setup demo test lint bench paper image sif test-image test-slurm clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps $(REFERENCES)
	touch $(STAMP)

setup: $(STAMP)  ## Make .venv and install everything into it

demo: $(STAMP)  ## Simulate heads and a table, check the one, find the patterns in the other
	$(BIN)/surreal-simulate cohort $(DEMO)/heads --n-cn 3 --n-pt 3 --atlases 2
	$(BIN)/python run.py $(DEMO)/heads $(DEMO)/derivatives participant --dry-run
	$(BIN)/surreal-simulate table $(DEMO)/table --task basic --n-cn 300 --n-pt 400
	test -f $(DEMO)/model/model.json || $(BIN)/surreal-gan fit $(DEMO)/table/roi_volumes.tsv \
	    --participants $(DEMO)/table/participants.tsv --features muse139 --covariates age sex \
	    --icv-column icv --site-column site --out $(DEMO)/model \
	    --preset robust --n-patterns 3 --ortho 0.4 --repetitions 5 --iterations 8000
	$(BIN)/surreal-simulate score $(DEMO)/model/rindices.tsv $(DEMO)/table/severities.tsv
	@echo
	@echo 'The demo is in $(DEMO)/. Worth opening:'
	@echo '  $(DEMO)/model/summary.txt       what was trained, and what was chosen'
	@echo '  $(DEMO)/model/rindices.tsv      R-indices of every simulated person'
	@echo '  $(DEMO)/heads/sub-*/anat/*.nii.gz   simulated heads, in any NIfTI viewer'
	@echo '  $(DEMO)/heads/sourcedata/truth/ what was done to them'

lint: $(STAMP)  ## Style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)  ## All tests, the slow ones included
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal

bench: $(STAMP)  ## Speed beside the alternatives; results go to benchmarks/results
	$(BIN)/python benchmarks/bids_layout.py
	$(BIN)/python benchmarks/combat.py
	$(BIN)/python benchmarks/cohort.py
	$(BIN)/python benchmarks/speed.py

paper: $(STAMP)  ## The paper's experiments in a quick setting (docs/paper.md tells of the full one)
	$(ONE_THREAD) $(BIN)/python benchmarks/paper.py $(DEMO)/paper --quick

image:  ## Build the image, with docker or podman
	singularity/build_image.sh

sif: image  ## Turn the image into an Apptainer (Singularity) image
	singularity/build_sif.sh

test-image: $(STAMP)  ## Build both images and run both levels in them, without network
	tests/containers/test_image.sh
	tests/containers/test_sif.sh

test-slurm: $(STAMP)  ## Participants and group through a Slurm of one node
	tests/containers/test_slurm.sh

clean:  ## Remove what the demo wrote and the caches
	rm -rf $(DEMO) .mypy_cache .ruff_cache .pytest_cache .hypothesis
