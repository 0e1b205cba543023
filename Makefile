# Two commands do all the set-up: `make reproduce` runs the main job, `make test` the tests.
# Every target makes .venv itself. PYTHON chooses the interpreter, 3.11 or later.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: the commands, the web server with them, the tests and linters with those.
BASE := $(VENV)/.base
SERVER := $(VENV)/.server
READY := $(VENV)/.ready
# Bytecode is made when a module is first imported: compiling everything takes longer, and 80 MB.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable

# Python must therefore be allowed to write it: a process that starts without it takes three seconds more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup reproduce demo test test-slow torture docs site pictures wheel lint format clean system-deps

setup: $(BASE)

# The package's first file has its version, which is also written where it is installed.
$(BASE): pyproject.toml constraints.txt src/recombine/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	@touch $(BASE)

$(SERVER): $(BASE)
	$(PIP) '.[serve]'
	@touch $(SERVER)

$(READY): $(BASE)
	$(PIP) '.[dev]'
	@touch $(SERVER) $(READY)

reproduce: $(BASE)
	$(BIN)/recombine reproduce

demo: $(SERVER)
	$(BIN)/recombine serve --demo --open

# One worker more than there are cores: some tests wait for other processes.
test: $(READY)
	$(BIN)/python -m pytest -m 'not slow' --dist loadfile --durations=40 --durations-min=4 -n $$($(BIN)/python -c \
		'from recombine.run.machine import available_cores; print(available_cores() + 1)')

test-slow: $(READY)
	$(BIN)/python -m pytest -n auto -m slow

# The long form of the reliability tests: 200 kills, a fault at every operation on the disk, every bit of a checkpoint,
# 500 random sequences of all that happens to runs, thousands of links swapped in under the server. It ends with a table
# of the attacks.
torture: $(READY)
	$(BIN)/python -m pytest -n auto --torture tests/reliability tests/storage/test_integrity.py \
		tests/serve/test_heavy_load.py tests/serve/test_link_race.py tests/serve/test_malformed.py

# What some tests need from the system and skip without: a browser, and SLURM's daemons. Debian's names; as root.
system-deps:
	command -v chromium >/dev/null && command -v slurmctld >/dev/null || \
		(apt-get update -q && apt-get install -q -y --no-install-recommends chromium slurm-wlm)

# The tables and figures of the docs, from the runs in evidence/.
docs: $(READY)
	$(BIN)/python evidence/scripts/docs.py

# The docs as a site, in build/site. Broken links, and anything that would be loaded from elsewhere, end it.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The pictures of the server's page, in the docs. Needs a browser (make system-deps).
pictures: $(READY)
	$(BIN)/python -m tests.serve.pictures

# Builds the wheel, installs it into a fresh environment and tries every command there, outside this directory.
wheel: $(READY)
	$(BIN)/python .ci/wheel.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
