# Every target sets itself up: .venv with the pinned versions, made once and reused.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint docs wheel-test test-gpu test-browser torture mutate clean

demo: $(READY)
	$(BIN)/firm reproduce portrait

test: $(READY)
	$(BIN)/python -m pytest

# On a machine with a GPU: the tests that need one (they are skipped elsewhere).
test-gpu: $(READY)
	$(BIN)/python -m pytest -m cuda -n 0

# The pages in the system's chromium (on Debian: apt-get install chromium fonts-dejavu-core).
test-browser: .venv/.browser
	$(BIN)/python -m pytest -n 0 -rs tests/demo tests/experiments/test_report.py

.venv/.browser: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,demo,browser]" -c constraints.txt
	touch $@

# Attack the library on purpose (under 30 minutes on 2 cores), and break it line by line to see whether the tests notice.
torture: .venv/.browser
	$(BIN)/python tests/reliability/torture.py --out outputs/torture.json

mutate: .venv/.browser
	$(BIN)/python tests/reliability/mutate.py

# The site, in docs/_build/html: runs the gallery, needs no network once set up, and takes warnings as errors.
docs: .venv/.ready-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The wheel in an empty environment: does it install, and restore the bundled portrait?
wheel-test: $(READY)
	$(BIN)/python tests/wheel.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	touch $@

.venv/.ready-docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]" -c constraints.txt
	touch $@

clean:
	rm -rf .venv outputs docs/_build docs/api docs/gallery docs/results docs/images/made
