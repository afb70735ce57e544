# Every command of the project. A target sets up what it lacks and a second run does not
# (docs/decisions/0002). README.md says what they need and how long they take.

ifeq ($(wildcard examples/tiny-gpt.yaml),)
$(error this is not the folder of Plimsoll: make -C $(dir $(lastword $(MAKEFILE_LIST))) $(MAKECMDGOALS))
endif

PYTHON ?= python3
ifeq ($(strip $(PYTHON)),)
override PYTHON := python3
endif
TORCH ?=
# A torch that is asked for by its number has an environment of its own.
ENV := .venv$(if $(filter 2.%,$(TORCH)),-torch-$(firstword $(TORCH)))
BIN := $(ENV)/bin

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all test-nodes test-torch check lint format lab lab-down bench gpu soak docs models \
  pictures images constraints clean
# With it Python would not find what is in this folder.
unexport PYTHONSAFEPATH

help:           ## list the targets
	@sed -n 's/^\([a-z%-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

EMULATED := --device cpu --devices 8 --device-memory 128MiB
quickstart: env-local  ## install, then train a small GPT on as few devices as it fits
	@mkdir -p build
	@$(BIN)/plimsoll run examples/tiny-gpt.yaml $(EMULATED) --home build/quickstart \
	  --report build/quickstart.html $(if $(PROVE),--prove)

test: env-dev   ## what CI runs: lint, types, unit tests, wheel, real Kubernetes
	@$(BIN)/python -m tools.gates test

test-all: env-dev  ## all tests: far more instances, test-nodes, every Python: hours
	@$(BIN)/python -m tools.gates all

test-nodes: env-dev  ## whole plans on real nodes: end to end, every failure
	@$(BIN)/python -m tools.gates nodes

# What torch 2.11 says of itself while it loads its compiler.
OF_OLDER_TORCH := -W 'ignore:`torch.jit.script_method` is deprecated:DeprecationWarning'
OLDER_TORCH := tests/training_job tests/profiler_job tests/gates/test_private_names.py
test-torch:     ## trainer, profiler, replay and a whole run on an older torch; TORCH=2.11
	@printf %s '$(TORCH)' | grep -Eqx '2\.[0-9]+(\.[0-9]+)?' || { \
	  echo "TORCH='$(TORCH)': name one release, as in make test-torch TORCH=2.11" >&2; exit 2; }
	@$(MAKE) --no-print-directory env-dev TORCH=$(TORCH)
	@$(BIN)/python -m plimsoll_profiler.ranks.self_check
	@$(BIN)/python -m pytest -q -p no:cacheprovider $(OF_OLDER_TORCH) $(OLDER_TORCH)
	@mkdir -p build; home=$$(mktemp -d build/quickstart-torch.XXXXXX); \
	  $(BIN)/plimsoll run examples/tiny-gpt.yaml $(EMULATED) --home $$home && rm -r $$home

check: env-dev  ## the inner loop: lint, types, quick unit tests
	@$(BIN)/python -m tools.gates check

lint: env-dev   ## formatting, lint, types, who imports whom
	@$(BIN)/python -m tools.gates lint

format: env-dev ## rewrite the formatting
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lab: env-dev    ## start the test cluster and print its KUBECONFIG
	@$(BIN)/python -m tests.lab up

lab-down:       ## stop every test cluster that `make lab` started
	@$(PYTHON) -m tests.lab down

BENCHMARKS := $(filter-out frame,$(notdir $(basename $(wildcard benchmarks/*.py))))
bench-%: env-dev  ## measure benchmarks/NAME.py, write build/bench/NAME.json
	@case " $(BENCHMARKS) " in *" $* "*) $(BIN)/python -m benchmarks.$*;; *) \
	  echo "no benchmark $*; there are: $(BENCHMARKS)" >&2; exit 2;; esac

bench: env-dev  ## all benchmarks that this machine can run
	@$(BIN)/python -m benchmarks.frame

# Nothing is installed: a GPU machine without a network has a Python with torch already.
GPU_PYTHON = $(or $(if $(filter command,$(word 1,$(origin PYTHON))),$(PYTHON)),$(wildcard $(BIN)/python),$(PYTHON))
gpu:            ## measure a GPU against predictions, torch and numpy alone; DEVICE=cpu
	@PYTHONPATH=planner:training_job:profiler_job:.$${PYTHONPATH:+:$$PYTHONPATH}; \
	  export PYTHONPATH; exec $(GPU_PYTHON) -m benchmarks.gpu.tied $$PPID \
	  benchmarks.gpu --device $(or $(DEVICE),cuda) $(GPU)

KILLS ?= 200
soak: env-dev   ## kill runs at random moments, KILLS=200 times, and operators 5 times that
	@PLIMSOLL_KILLS=$(KILLS) $(BIN)/python -m pytest -q --timeout 3600 \
	  tests/operator/backends/local/test_kills.py \
	  tests/operator/backends/local/test_revisions.py
	@$(BIN)/python -m tests.lab prepare
	@PLIMSOLL_KILLS=$$((5 * $(KILLS))) $(BIN)/python -m pytest -q \
	  tests/lab/test_kills_on_a_server.py
	@PLIMSOLL_KILLS=$$((($(KILLS) + 6) / 7)) $(BIN)/python -m pytest -q \
	  tests/lab/test_revisions_on_nodes.py

docs: env-dev   ## write the pages that are made from the code, and the definition
	@$(BIN)/python -m tools.formats
	@$(BIN)/python -m tools.trainingplan
	@$(BIN)/python -m tools.definition
	@$(BIN)/python -m tools.metrics

pictures: env-dev ## take the pictures of docs/pictures, of a report; needs Chromium
	@$(BIN)/python -m tools.pictures

models: env-dev ## read all causal language models of transformers, and write the page
	@$(BIN)/python -m tools.models

images:         ## build the container images; IMAGES=, BASE_IMAGE=, PREFIX=REGISTRY/plimsoll/
	@BASE_IMAGE=$(BASE_IMAGE) PREFIX=$(or $(PREFIX),registry.example/plimsoll/) \
	  $(PYTHON) -m tools.images $(IMAGES)

constraints: env-dev  ## resolve the newest versions into constraints.txt
	@$(BIN)/python tools/constraints.py

clean:          ## remove what the targets made in this folder
	rm -rf $(ENV) .venv.lock .venv-torch-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

# The environment; this one line must also run on Pythons that are too old for the rest.
env-%:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "Plimsoll needs Python 3.11 to 3.13, and $(PYTHON) is %d.%d: name another one with make PYTHON=python3.12" % v)'
	@$(PYTHON) tools/bootstrap.py $(ENV) $* $(if $(TORCH),--torch '$(TORCH)')
