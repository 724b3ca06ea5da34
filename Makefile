# latentmill: a folder of pictures becomes a Stable Diffusion LoRA.
#   make validate caption cache train DATA=~/photos/my-dog MODEL=stable-diffusion-v1-5/stable-diffusion-v1-5
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
export PYTHONSAFEPATH := 1

# The values are handed on untouched: blanks, quotes, `$` and any language in a path are fine.
override DATA := $(value DATA)
override MODEL := $(value MODEL)
override WORK := $(value WORK)
override CONFIG := $(value CONFIG)
export DATA MODEL WORK CONFIG
export LATENTMILL_MAKE_FROM := $(value PWD)# makes the next commands that are shown begin with `make`
FLAGS = $${CONFIG:+--config "$$CONFIG"} $${DATA:+--data "$$DATA"} $${MODEL:+--model "$$MODEL"} $${WORK:+--work "$$WORK"} $(ARGS)

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done || true)
BIN := $(VENV)/bin
SETUP := $(VENV)/.set-up
RUN := $(BIN)/latentmill

##@ Set up
setup: $(SETUP) ## Make .venv and install latentmill and its tools into it
demo: $(SETUP) ## Run the whole way on the embedded model and pictures, in some minutes
	@$(RUN) demo $${WORK:+--work "$$WORK"} $(ARGS)

##@ The pipeline, in order: DATA=DIR MODEL=ID-or-PATH [WORK=DIR] [CONFIG=FILE] [ARGS="--set train.rank=16"]
validate: $(SETUP) ## Find every fault in pictures and captions
	@$(RUN) validate $(FLAGS)
caption: $(SETUP) ## Draft missing captions; write WORK/review.csv for people to review
	@$(RUN) caption $(FLAGS)
review: $(SETUP) ## Look at pictures and captions on a local page: edit, approve, set aside
	@$(RUN) review $(FLAGS)
approve: $(SETUP) ## Approve all drafts in review.csv (or ARGS="--id p0123...")
	@$(RUN) approve $(FLAGS) $(if $(findstring --id,$(ARGS)),,--all-drafts)
bucket: $(SETUP) ## Show which picture goes to which bucket and what is cropped
	@$(RUN) bucket $(FLAGS)
cache: $(SETUP) ## Encode pictures and captions to shards
	@$(RUN) cache $(FLAGS)
train: $(SETUP) ## Train the LoRA from the shards (ARGS=--resume goes on with the last run)
	@$(RUN) train $(FLAGS)
sample: $(SETUP) ## Make pictures with and without the LoRA, side by side
	@$(RUN) sample $(FLAGS)
export: $(SETUP) ## Write the LoRA for diffusers (or ARGS="--layout peft")
	@$(RUN) export $(FLAGS)
status: $(SETUP) ## Print the ledger of pictures and what is still to do
	@$(RUN) status $(FLAGS)

##@ For latentmill itself
check: $(SETUP) ## Lint, format and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
test: $(SETUP) ## All tests
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope
test-fast: $(SETUP) ## The tests that take under a few seconds each
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope -m "not slow"
bench: bench-validate bench-captions bench-cache bench-read ## All benches: each prints its ratios side by side
bench-validate: $(SETUP) ## Pictures a second beside a bare decode; second run; memory
	@$(BIN)/python benches/bench_validate.py $(ARGS)
bench-captions: $(SETUP) ## Captions in old encodings: share read right, asked about, silently wrong
	@$(BIN)/python benches/bench_captions.py $(ARGS)
bench-cache: $(SETUP) ## cache beside its bare parts and a naive loop (ARGS=64 pictures)
	@$(BIN)/python benches/bench_cache.py $(ARGS)
bench-read: $(SETUP) ## Shards beside copying memory and .npz files (ARGS=512 samples)
	@$(BIN)/python benches/bench_read.py $(ARGS)

help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

$(SETUP): setup.cfg pyproject.toml
	@$(or $(PYTHON),python3) pipeline/setup_check.py $(VENV)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV): some minutes and about 6 GB, most of it torch" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.PHONY: setup demo validate caption review approve bucket cache train sample export status check test test-fast bench bench-validate bench-captions bench-cache bench-read help
