# The Python that .venv was made with, unless one is named.
PYTHON ?= $(or $(wildcard $(shell sed -n 's/^executable = //p' .venv/pyvenv.cfg 2>/dev/null)),python3)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q --dist loadfile
LOCK = $(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-strip-extras --python-version 3.11

.PHONY: setup tools lake-tools browser-tools docs-tools run sandbox test suite test-long test-lake test-browser test-mass test-faults check style types bench docs docs-serve lock clean

# What the application needs, and what tests and benchmarks need.
setup: LOCKS = requirements.lock
tools: LOCKS = requirements.lock locks/dev.lock locks/docs.lock
lake-tools: LOCKS = requirements.lock locks/dev.lock locks/lake.lock
browser-tools: LOCKS = requirements.lock locks/dev.lock locks/docs.lock locks/browser.lock
docs-tools: LOCKS = locks/docs.lock
setup tools lake-tools browser-tools docs-tools:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and \
		"Almanac needs Python 3.11 to 3.13; name one with make PYTHON=python3.12")'
	@$(PYTHON) -P .ci/environment.py $(LOCKS)

run: setup
	@$(BIN)/almanac run --days 7

sandbox: setup
	@$(BIN)/almanac sandbox

# Types are checked beside the tests: mypy uses one core only.
test: style
	@$(MAKE) --no-print-directory -j 2 types suite

suite: tools
	$(PYTEST) -n 3 tests

test-long: tools
	$(PYTEST) -n 2 --hypothesis-profile long -m "(long or hypothesis) and not (mass or lake or browser)" tests
	$(BIN)/python -m tests.almanac.packaging.clean_environments

# Needs Java 17, PostgreSQL and about 1 GB of packages; tests without them are skipped.
test-lake: lake-tools
	$(PYTEST) -m "lake and not long" tests/lake

# Needs Chromium, and npm for axe-core.
test-browser: browser-tools
	@npm install --silent --no-save --no-package-lock --prefix .venv/npm axe-core@4
	$(PYTEST) -m "browser and not long" tests/application/web

test-mass: tools
	$(PYTEST) -n 2 -m mass tests

test-faults: tools
	$(BIN)/python tests/mutants/run.py --jobs 2

check: style types

style: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/prose.py

types: tools
	$(BIN)/mypy
	@.ci/audit

# Needs Linux and two cores. About an hour; stop other work first.
bench: tools
	$(BIN)/python -m bench.peers
	$(BIN)/python -m bench.peers --events 1000000 --days 2 --only almanac,one_file,one_file+
	$(BIN)/python -m bench.as_of
	$(BIN)/python -m bench.as_of --events 500000 --versions 10000000
	$(BIN)/python -m bench.joins
	$(BIN)/python -m bench.server
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.growth

# The docs site, in build/site. Open build/site/index.html.
docs: docs-tools
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open $(CURDIR)/build/site/index.html"

docs-serve: docs-tools
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

lock: setup
	$(LOCK) --group application pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock --group pyproject.toml:setup -o locks/setup.lock
	$(LOCK) -c requirements.lock -c locks/setup.lock --group dev --group bench --extra study --extra plot --extra polars \
		--extra lake pyproject.toml -o locks/dev.lock
	$(LOCK) -c requirements.lock -c locks/setup.lock -c locks/dev.lock --group lake --extra lake \
		pyproject.toml -o locks/lake.lock
	$(LOCK) -c requirements.lock -c locks/lake.lock --group application --group scale --extra lake pyproject.toml \
		-o locks/scale.lock
	$(LOCK) -c requirements.lock -c locks/setup.lock -c locks/dev.lock --group browser pyproject.toml \
		-o locks/browser.lock
	$(LOCK) -c requirements.lock -c locks/setup.lock -c locks/dev.lock --group docs pyproject.toml \
		-o locks/docs.lock

clean:
	rm -rf .venv build dist
