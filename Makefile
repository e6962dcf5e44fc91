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

$(STAMP): pyproject.toml local/pyproject.toml $(addprefix requirements/,build.txt development.txt uv.txt)
	@test -n "$(PYTHON)" || { echo "make venv: Python 3.11 or newer with its venv module is needed" \
		"(on Debian: apt-get install python3-venv); name it with PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements/development.txt \
		--build-constraint requirements/build.txt --editable '.[cli]' --editable ./local --group dev
	touch $@

.PHONY: lint
lint: $(STAMP) ## style, layers, generated files, types
	$(BIN)/tox run -e lint,types

.PHONY: format
format: $(STAMP) ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: check
check: $(STAMP) ## lint, types and unit tests in parallel: run it before every commit; under four minutes on two cores
	$(BIN)/tox run-parallel --parallel-no-spinner -e lint,types,unit

.PHONY: test
test: $(STAMP) ## what CI runs: check, then api and the core of e2e; 15 minutes (the first time builds a control plane: 10 more)
	$(BIN)/python -m tools.run_tests test

.PHONY: test-live
test-live: $(STAMP) ## all of e2e, and what else takes long: kills, faults, attacks, churn, scale, differentials; more than an hour
	$(BIN)/python -m tools.run_tests live

.PHONY: bench
bench: $(STAMP) ## measure
	$(BIN)/python benchmarks/run.py

.PHONY: bench-live
bench-live: $(STAMP) ## OPTIONS='--kubeconfig FILE --peer DESCHEDULER': a plan on a live cluster, compared with the real descheduler
	$(BIN)/python benchmarks/live.py $(OPTIONS)

.PHONY: bench-lag
bench-lag: $(STAMP) ## OPTIONS='--slices --seconds 300': how long the operator's event loops are busy, with 5,000 nodes, 150,000 pods and 100 changes a second
	$(BIN)/python benchmarks/loop_lag.py $(OPTIONS)

.PHONY: bench-reaction
bench-reaction: $(STAMP) ## the autoscaler live on a local control plane: how soon it asks for nodes, and what nodes cost in requests
	$(BIN)/python benchmarks/reaction.py $(OPTIONS)

.PHONY: bench-tainting
bench-tainting: $(STAMP) ## pods of 100 tainted nodes among 5,000, live: how fast they are evicted, compared with kube-controller-manager; 15 minutes, 14 GiB
	$(BIN)/python benchmarks/tainting.py $(OPTIONS)

.PHONY: bench-evicting
bench-evicting: $(STAMP) ## OPTIONS='--turns 3': evictions a second and their CPU time, live, next to kubectl drain and a script that does nothing else
	$(BIN)/python benchmarks/evicting.py $(OPTIONS)

.PHONY: bench-admission
bench-admission: $(STAMP) ## the admission webhooks live at 500 pod creations per second, by the API server's own metric
	$(BIN)/python benchmarks/admission.py $(OPTIONS)

.PHONY: bench-pressure
bench-pressure: $(STAMP) ## OPTIONS='--nodes 5000 --hanging 1000': read the stats of 5,000 kubelets over TLS every 10 seconds
	$(BIN)/python benchmarks/node_pressure.py $(OPTIONS)

.PHONY: bench-scheduling
bench-scheduling: $(STAMP) ## OPTIONS='--nodes 5000 --pods 150000': scheduler_perf's workloads live, next to kube-scheduler
	$(BIN)/python benchmarks/scheduling.py $(OPTIONS)

.PHONY: bench-questions
bench-questions: $(STAMP) ## OPTIONS='--nodes 5000 --times 1': each command that answers a question of an administrator, on a cluster in a file
	$(BIN)/python benchmarks/questions.py $(OPTIONS)

.PHONY: bench-inspection
bench-inspection: $(STAMP) ## OPTIONS='--name 5k': the questions served by the operator, from a file and cold, on a filled local cluster; its memory and latency
	$(BIN)/python benchmarks/serving.py $(OPTIONS)

.PHONY: bench-ui
bench-ui: $(STAMP) ## OPTIONS='--kubeconfig FILE': first paint and JavaScript heap of the live page in headless Chromium
	$(BIN)/python benchmarks/live_page.py $(OPTIONS)

# How many random pods, and the seed of the first random cluster.
N ?= 1000
SEED ?= 1

.PHONY: differential
differential: $(STAMP) ## N=1000 random pods, SEED=1: compare trimtab's placement with kube-scheduler's
	$(BIN)/python -m tests.differential --pods $(N) --seed $(SEED) $(OPTIONS)

# N for these two is clusters, 200 unless it is given.
.PHONY: differential-drains
differential-drains: $(STAMP) ## N=200 random clusters, SEED=1: carry out planned node removals with kube-scheduler
	$(BIN)/python -m tests.differential.drains --clusters $(if $(filter command,$(origin N)),$(N),200) --seed $(SEED) $(OPTIONS)

.PHONY: differential-descheduler
differential-descheduler: $(STAMP) ## N=200 random clusters, SEED=1: compare trimtab's plans with the descheduler's
	$(BIN)/python -m tests.descheduler_differential --clusters $(if $(filter command,$(origin N)),$(N),200) \
		--seed $(SEED) $(OPTIONS)

.PHONY: differential-kubelet
differential-kubelet: $(STAMP) ## N=1000 random timelines, SEED=1: compare trimtab's plans with the kubelet's eviction manager
	$(BIN)/python -m tests.kubelet_differential --timelines $(N) --seed $(SEED) $(OPTIONS)

.PHONY: conformance
conformance: $(STAMP) ## Kubernetes' own e2e specs with kube-scheduler and with trimtab in its place, compared; 30 minutes
	$(BIN)/python -m tools.conformance $(OPTIONS)

.PHONY: demo
demo: $(STAMP) ## the descheduler at work on a local control plane; ends by itself, unless KEEP=1
	$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

.PHONY: docs
docs: $(STAMP) ## build the documentation site into site/, with strict links
	$(BIN)/tox run -e docs

.PHONY: generate
generate: $(STAMP) ## write what is made from code: crds/, the chart's copies, manifests/base, manifests/bundle, reference pages
	$(BIN)/python -m tools.generate

.PHONY: golden
golden: $(STAMP) ## rewrite tests/golden, the texts that tests compare messages with; review it with git diff
	rm -f tests/golden/*.txt
	$(BIN)/pytest tests/unit --update-golden --quiet

.PHONY: proto
proto: $(STAMP) ## write every *_pb2 and slim_json.py from the schemas; a newer protoc raises the bound of protobuf in pyproject.toml
	$(BIN)/python -m grpc_tools.protoc --proto_path=operator --python_out=operator --pyi_out=operator \
		$$(find operator -name '*.proto')
	$(BIN)/python -m tools.generate.wire

.PHONY: fuzz
fuzz: $(STAMP) ## feed the readers of files and of the API server's answers with 20,000 arbitrary inputs each
	$(BIN)/pytest --hypothesis-profile=fuzz tests/unit/kube/wire/test_fuzz.py

.PHONY: lock
lock: $(STAMP) ## pin, by hash, the newest dependencies that pyproject.toml allows
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' \
		| $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --output-file requirements/build.txt -
	echo uv | $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --output-file requirements/uv.txt -
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --no-emit-package trimtab pyproject.toml local/pyproject.toml --extra cli --group dev \
		--output-file requirements/development.txt
	$(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
		--python-version 3.13 --python-platform linux pyproject.toml --output-file requirements/image.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --group docs --output-file requirements/docs.txt

.PHONY: clean
clean: ## remove what the targets above made, but not the cached binaries of the control plane
	rm -rf $(VENV) .tox dist build site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
