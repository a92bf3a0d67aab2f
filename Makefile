# The torch that `make` installs: a pip requirement. If you need another index, put pip's options before it.
# For a CPU build: make demo TORCH='--index-url URL-OF-AN-INDEX torch==2.13.0'
TORCH ?= torch==2.13.0
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what it imports. pip would compile all of torch, of which that is a small part.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
# Container images often set this variable. With it, every Python process would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: stats simulate matrix help install wheel demo test test-rest test-all test-full test-gpu test-newest check docs docs-outputs docs-pictures bench bench-scripts golden clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

# A changed pyproject.toml installs again. Another TORCH does not: run `make clean` first.
.venv/installed-torch: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("trainjob needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(PIP) $(TORCH)
	@touch $@

.venv/installed-train: .venv/installed-torch
	$(PIP) -e '.[train]'
	@touch $@

# It has all of installed-train: to build and install that by itself first takes seconds.
.venv/installed-dev: .venv/installed-torch
	$(PIP) -e '.[train,dev]'
	@touch .venv/installed-train $@

# Only `make check` needs the playbooks' linter, which installs Ansible.
.venv/installed-check: .venv/installed-dev
	$(PIP) -e '.[train,dev,provision,check]'
	@touch $@

.venv/installed-docs: .venv/installed-train
	$(PIP) -e '.[train,docs]'
	@touch $@

install: .venv/installed-train ## Install trainjob, with what training needs, into .venv

wheel: ## Build the wheel, one file for every platform, in dist/
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

demo: install ## Train on real handwritten digits with two processes
	$(BIN)/trainjob submit --cluster local --instances 2 --again --follow
	@echo 'trainjob is in $(BIN): `. $(BIN)/activate` puts it on your PATH'

# There are more workers than cores, because many tests wait; each worker collects all tests, which takes 6 s of a core. Quick tests go
# to whichever is free, and look at nothing that is logged, which pytest would catch for each of them. Of the others, those of a file
# run in one worker, because they share services that are slow to start: more than three are no faster. tests/conftest.py says in
# which order the files begin. shellcheck runs with `make check`.
SHELLCHECK := tests/scripts/test_shellcheck.py
QUICK := tests/unit tests/scripts tests/batchfiles/unit tests/batchfiles/scripts tests/training/test_end_to_end.py
TEST_QUICK := $(BIN)/pytest -n 4 --dist worksteal -p no:logging --ignore=$(SHELLCHECK) $(QUICK)
TEST_SLOW := $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder tests $(addprefix --ignore=,$(QUICK))

test: .venv/installed-dev ## Run the quick tests and one training run, in about three minutes
	$(TEST_QUICK) -m "not full"

test-all: test ## Run all tests but the longest; tests whose service is missing are skipped
	$(MAKE) --no-print-directory test-rest

test-rest: .venv/installed-dev ## Run what test-all runs after test
	$(TEST_SLOW) -m "not full"

# Launchers and frameworks have a virtualenv of their own, so that other tests don't find them installed. It is made once, in minutes.
LAUNCHERS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainjob/launchers-$(shell $(PYTHON) -c 'import sys; print("py%d.%d" % sys.version_info[:2])')-$(subst ==,,$(lastword $(TORCH)))
$(LAUNCHERS)/complete:
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(@D)/bin/pip install --quiet --disable-pip-version-check setuptools wheel transformers accelerate lightning
	DS_BUILD_OPS=0 $(@D)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation deepspeed
	@touch $@

test-full: export TRAINJOB_LAUNCHERS_VENV ?= $(LAUNCHERS)
test-full: export TRAINJOB_FRAMEWORKS_VENV ?= $(LAUNCHERS)
test-full: .venv/installed-dev $(LAUNCHERS)/complete ## Run all tests, also those that take longer than CI allows: every night
	$(MAKE) --no-print-directory test-newest
	$(TEST_QUICK) --hypothesis-profile nightly
	$(TEST_SLOW)

test-gpu: .venv/installed-dev ## Run the tests that need NVIDIA GPUs; each skips with a reason where there is none
	$(BIN)/pytest -rs tests/services/gpu

SEEDS ?= 1000
simulate: .venv/installed-dev ## Run SEEDS seeded histories in a simulated world: simulation/README.md
	$(BIN)/python -m simulation --seeds $(SEEDS) --first $(or $(FIRST),1)

matrix: .venv/installed-dev ## Test jobs on every release of Slurm, and write docs/slurm-matrix.md
	TRAINJOB_MATRIX_PAGE=docs/slurm-matrix.md $(BIN)/pytest -q -n 4 --dist loadgroup tests/services/matrix

test-newest: .venv/installed-dev ## Run tests/unit on the newest Python of this machine, if it is newer than that of .venv
	newest=$$(.ci/newest-python $(BIN)/python) && \
	  { [ -z "$$newest" ] || $$newest -m pytest -q -n 2 -p no:cacheprovider tests/unit; }

check: .venv/installed-check ## Check style, types, import rules, laws, playbooks, and every rendered script with shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 trainjob/contract trainjob/records trainjob/data trainjob/launch trainjob/train standins
	$(BIN)/lint-imports
	$(BIN)/python .ci/laws.py
	cd playbooks && PATH="$(CURDIR)/$(BIN):$$PATH" ansible-lint --offline --strict
	$(BIN)/pytest -q tests/scripts/render/test_golden.py $(SHELLCHECK)

stats: .venv/installed-dev ## Print the size of the code beside its goals, and the longest modules and functions
	$(BIN)/python .ci/stats.py

docs: .venv/installed-docs ## Build the documentation in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-outputs: .venv/installed-dev ## Update the reference pages and the outputs in the documentation; PAGE=docs/verify.md updates one page
	$(BIN)/python -m docs.generate reference
	$(BIN)/python -m docs.generate outputs $(PAGE)

docs-pictures: .venv/installed-dev ## Make the runs whose reports the documentation shows, and take screenshots of the reports
	$(BIN)/python docs/screenshots.py

golden: .venv/installed-dev ## Update the golden scripts; read the difference before you commit it
	$(BIN)/pytest -q tests/scripts/render/test_golden.py --write-golden

bench: .venv/installed-dev ## Run the benchmarks; every ratio is measured within one run
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/loader.py
	$(BIN)/python benchmarks/images.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python -m benchmarks.records
	$(BIN)/python benchmarks/gpus.py
	$(BIN)/python benchmarks/launching.py
	$(BIN)/python -m benchmarks.many_ranks
	$(BIN)/python benchmarks/environments.py

bench-scripts: .venv/installed-dev ## Measure doctor: FOLDER=… has batch files, VERDICTS=… a table of what is wrong with them; PROVE=1 runs their jobs, too
	$(BIN)/python benchmarks/batch_scripts.py "$(FOLDER)" "$(VERDICTS)" $(if $(PROVE),--prove)

clean: ## Remove .venv, build results and caches
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
