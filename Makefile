# Targets for a checkout. `make` alone lists them.
#
#   PYTHON       interpreter that creates the virtual environment (default: python3, 3.10 or later)
#   VENV         where it is created (default: .venv)
#   VENV_PYTHON  an interpreter that already has the dependencies; nothing is created or installed then
#   WORKERS      test processes (default: 2)
#   PIP_ARGS     further arguments of `pip install`, e.g. --extra-index-url with PyTorch's index of CPU wheels
#   ARGS         further arguments of pytest, e.g. ARGS="tests/test_spaces.py -k sample"

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
PIP_ARGS ?=
ARGS ?=

DEMO_STAMP := $(VENV)/.ready-demo
TEST_STAMP := $(VENV)/.ready-test
ifeq ($(origin VENV_PYTHON),undefined)
  VENV_PYTHON := $(VENV)/bin/python
  TEST_READY := $(TEST_STAMP)
  # What the tests need includes what the demonstration needs.
  DEMO_READY := $(or $(wildcard $(TEST_STAMP)),$(DEMO_STAMP))
endif

INSTALLED_FROM := setup.cfg pyproject.toml constraints.txt
PIP_INSTALL = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt $(PIP_ARGS)
PYTEST = $(VENV_PYTHON) -m pytest
TYPED_TREE := build/typecheck

.PHONY: help demo test test-again test-full test-gpu lint typecheck format clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

demo: $(DEMO_READY) ## run the first example on the CPU
	$(VENV_PYTHON) examples/first_episode.py

test: lint ## checks and the quick tests: what every change must pass
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow and not gpu" $(ARGS)

test-again: $(TEST_READY) ## what failed in the last run, one test at a time
	$(PYTEST) -n 0 --last-failed --last-failed-no-failures none -m "not slow and not gpu" $(ARGS)

test-full: lint ## checks and every test that needs no GPU
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not gpu" $(ARGS)

test-gpu: $(TEST_READY) ## the tests that need a CUDA device, one at a time
	$(PYTEST) -m gpu $(ARGS)

lint: $(TEST_READY) ## style, format and types
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	@$(MAKE) --no-print-directory typecheck

# A type checker knows no `package_dir`: to it kernelgym_env.tasks does not exist. So it gets a folder of links in which
# the package looks as it does when installed. The paths that it prints are turned back into those of the checkout.
typecheck: $(TEST_READY) ## types alone
	@rm -rf $(TYPED_TREE) && mkdir -p $(TYPED_TREE)/kernelgym_env
	@ln -s $(CURDIR)/kernelgym_env/* $(CURDIR)/tasks $(CURDIR)/wrappers $(TYPED_TREE)/kernelgym_env/
	MYPYPATH=$(TYPED_TREE) $(VENV_PYTHON) -m mypy -p kernelgym_env \
	  | sed -E 's#^$(TYPED_TREE)/kernelgym_env/(tasks|wrappers)/#\1/#; s#^$(TYPED_TREE)/##'

format: $(TEST_READY) ## rewrite the code in the house style
	$(VENV_PYTHON) -m ruff check --fix .
	$(VENV_PYTHON) -m ruff format .

clean: ## remove what builds and tests leave behind
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

distclean: clean ## also remove the virtual environment
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip says nothing until it is done, so what it does and why is said before.
define SAY_WHAT
@if [ -e $@ ]; then echo "Installing into $(VENV) again, because of changes in: $?"; \
elif [ -e $(DEMO_STAMP) ]; then echo "Installing into $(VENV) what the tests need beside what the demo needs: $(FOR_TESTS)."; \
else echo "Installing kernelgym_env into $(VENV) with what it needs, torch above all$(MORE)."; \
  echo "The first time this may take minutes: torch has hundreds of megabytes, with CUDA several gigabytes."; fi
endef
FOR_TESTS := pytest, mypy, ruff, Jupyter's kernel and others

$(DEMO_STAMP): EXTRAS :=
$(DEMO_STAMP): MORE :=
$(TEST_STAMP): EXTRAS := [test,notebooks]
$(TEST_STAMP): MORE := , and what the tests need
# The build backend comes first and from constraints.txt too: pip would otherwise fetch its newest release.
$(DEMO_STAMP) $(TEST_STAMP): $(INSTALLED_FROM) | $(VENV)/bin/python
	$(SAY_WHAT)
	$(PIP_INSTALL) setuptools wheel
	$(PIP_INSTALL) --no-build-isolation -e '.$(EXTRAS)'
	touch $@
