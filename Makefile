# Everything a contributor runs. Each target brings what it needs; only make and Python 3.11 or newer must be there.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The interpreter that .venv is made with: `make venv PYTHON=python3.13`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# uv does not read pip's configuration: a mirror that is set there is uv's as well.
INDEX := $(or $(PIP_INDEX_URL),$(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null))
ifneq ($(INDEX),)
export UV_DEFAULT_INDEX ?= $(INDEX)
endif

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 28

.PHONY: venv
venv: $(STAMP) ## make .venv with trimtab, editable, and all that development needs

$(STAMP): pyproject.toml requirements/development.txt
	@test -n "$(PYTHON)" || { echo "make venv: Python 3.11 or newer with its venv module is needed" \
		"(on Debian: apt-get install python3-venv); name it with PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements/development.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements/development.txt \
		--editable '.[cli]' --group dev
	touch $@

.PHONY: lint
lint: $(STAMP) ## style, layers, generated files, types
	$(BIN)/tox run -e lint,types

.PHONY: format
format: $(STAMP) ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: test
test: $(STAMP) ## everything: lint, types, unit, api, e2e (the first time builds a control plane: some minutes)
	$(BIN)/tox run

.PHONY: bench
bench: $(STAMP) ## measure
	$(BIN)/python benchmarks/run.py

.PHONY: bench-live
bench-live: $(STAMP) ## OPTIONS='--kubeconfig FILE --peer DESCHEDULER': a plan on a live cluster, beside the real descheduler
	$(BIN)/python benchmarks/live.py $(OPTIONS)

.PHONY: bench-reaction
bench-reaction: $(STAMP) ## the autoscaler live on a local control plane: how soon it asks for nodes, and what nodes cost in requests
	$(BIN)/python benchmarks/reaction.py $(OPTIONS)

.PHONY: bench-tainting
bench-tainting: $(STAMP) ## pods of 100 tainted nodes among 5,000, live: how fast they go, beside kube-controller-manager; 15 minutes, 14 GiB
	$(BIN)/python benchmarks/tainting.py $(OPTIONS)

# How many random pods, and the seed of the first random cluster.
N ?= 1000
SEED ?= 1

.PHONY: differential
differential: $(STAMP) ## N=1000 random pods, SEED=1: our placement compared with the real kube-scheduler's
	$(BIN)/python -m tests.differential --pods $(N) --seed $(SEED) $(OPTIONS)

# N for this one is clusters, 200 unless it is given.
.PHONY: differential-descheduler
differential-descheduler: $(STAMP) ## N=200 random clusters, SEED=1: our plans compared with the real descheduler's
	$(BIN)/python -m tests.descheduler_differential --clusters $(if $(filter command,$(origin N)),$(N),200) \
		--seed $(SEED) $(OPTIONS)

.PHONY: demo
demo: $(STAMP) ## the descheduler at work on a local control plane; ends by itself
	$(BIN)/python -m examples.demo

.PHONY: generate
generate: $(STAMP) ## write what is made from code: crds/, the chart's copies, manifests/base, reference pages
	$(BIN)/python -m tools.generate

.PHONY: proto
proto: $(STAMP) ## write every *_pb2 from its schema; a newer protoc raises the bound of protobuf in pyproject.toml
	$(BIN)/python -m grpc_tools.protoc --proto_path=operator --python_out=operator --pyi_out=operator \
		$$(find operator -name '*.proto')

.PHONY: lock
lock: $(STAMP) ## pin the newest dependencies that pyproject.toml allows
	$(BIN)/uv pip compile --quiet --upgrade --universal --no-emit-index-url --custom-compile-command "make lock" \
		pyproject.toml --extra cli --group dev --output-file requirements/development.txt
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
		--python-version 3.13 --python-platform linux pyproject.toml --output-file requirements/image.txt

.PHONY: clean
clean: ## remove what the targets above made, but not the cached binaries of the control plane
	rm -rf $(VENV) .tox dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
