# Two commands for a fresh machine with Python 3.11 or later: `make run` and `make test`.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
PYTHONS ?= $(shell for p in python3.11 python3.12 python3.13; do $$p -c 0 >/dev/null 2>&1 && echo $$p; done; true)
BIN := .venv/bin
WORKERS ?= 2

.PHONY: wheel docs pages run test locales compiled cluster-test check bench streams-kills conformance exhaustive lock ioredis redis-server mosquitto postgresql spin compare

run: .venv/installed compiled
	$(BIN)/orderlab validate lua/session --backend kernel

# Asserts as they stand spare each process the rewriting of every test; what failed is tried once more, to be told with its values.
test: .venv/installed redis-server postgresql spin locales ioredis compiled
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --assert=plain tests; code=$$?; \
	test $$code -ne 1 || { echo "make: what failed, once more:"; $(BIN)/python -m pytest -q --last-failed tests; }; exit $$code

# Wheels in dist: pure, and with machine code for every Python from 3.11 on that is here.
wheel:
	@rm -rf build/wheel && for python in $(PYTHONS); do \
	$$python -m venv build/wheel/$$python \
	&& build/wheel/$$python/bin/pip install --quiet --disable-pip-version-check hatchling mypy setuptools lupa \
	&& ORDERLAB_WHEEL=compiled build/wheel/$$python/bin/python -m hatchling build -t wheel -d dist || exit 1; done
	@set -- build/wheel/*; $$1/bin/python -m hatchling build -t wheel -d dist

# The notes as a site with a search, in build/site.
docs: .venv/installed
	$(BIN)/mkdocs build --quiet --strict

# The pages that are made of the code, and the gallery of defects (some minutes).
pages: .venv/installed compiled
	$(BIN)/python -m tests.laboratory.reference
	$(BIN)/python -m tests.laboratory.gallery

# A Spark master and two workers on loopback, one of which is killed halfway through a sweep.
cluster-test: .venv/installed
	$(BIN)/python -m pytest -q -m exhaustive tests/spark_sweeps/test_cluster.py

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

bench: .venv/installed redis-server spin compiled
	$(BIN)/orderlab bench all --quick

# The writer and the replayer of a stream, each killed a hundred times.
streams-kills: .venv/installed
	$(BIN)/python -m pytest -q -m exhaustive tests/sim/streams/test_killed_replay.py

conformance: .venv/installed redis-server mosquitto compiled
	$(BIN)/python -m tests.laboratory.conformance --commands 5000000
	$(BIN)/python -m tests.laboratory.conformance --contention 100
	$(BIN)/python tests/properties/clients/libraries/install.py
	$(BIN)/python -m tests.laboratory.conformance.recorded

# Generated tests once more as well, with fresh seeds and ten times the examples; the head of the output tells the seed.
exhaustive: .venv/installed redis-server postgresql compiled
	ORDERLAB_FRESH_EXAMPLES=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "exhaustive or hypothesis" tests

.venv/installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or later is needed: apt-get install python3 python3-venv"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Machine code for the kernel's hot modules, once for each state of the text; without a C compiler they run interpreted.
compiled: .venv/installed
	@$(BIN)/python -m orderlab.sim.native.build

# Programs that are judges or peers in tests. Installed where that is possible; otherwise the tests that need them fail.
redis-server:
	@command -v redis-server >/dev/null || $(call install,redis-server)

# Debian keeps its programs out of PATH.
postgresql:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(call install,postgresql)

mosquitto:
	@command -v mosquitto >/dev/null || ls /usr/sbin/mosquitto >/dev/null 2>&1 || $(call install,mosquitto)

spin:
	@command -v spin >/dev/null || $(call install,spin)

# A locale with a decimal comma is made of these in one test.
locales:
	@test -d /usr/share/i18n/locales || $(call install,locales)

# A client of Node.js that a test holds the served kernel against; without npm that test is skipped and says so.
ioredis:
	@test -d .libraries/node/node_modules/ioredis || ! command -v npm >/dev/null \
	|| npm install --silent --no-save --no-audit --no-fund --prefix .libraries/node ioredis@5.8.2 \
	|| echo "make: ioredis is missing and could not be installed; run: make ioredis"

install = { echo "make: installing $(1)"; \
	(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $(1)) >/dev/null 2>&1 \
	|| echo "make: $(1) is missing and could not be installed; run: sudo apt-get install $(1)"; }

# The table of stores and systems, and what it is made of.
compare: .venv/installed compiled
	$(BIN)/orderlab compare --report json=notes/side_by_side.json --report markdown=notes/side_by_side.md

# Pins every dependency with its hashes.
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet pip-tools
	.venv-lock/bin/pip-compile --quiet --extra dev --extra java --extra docs --extra clients --generate-hashes --strip-extras --allow-unsafe --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	sed -i.old -e "/^orderlab @ /,+1d" -e "/^# /d" requirements.lock && rm requirements.lock.old
	rm -rf .venv-lock
