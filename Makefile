# Everything a contributor types; `make` alone lists it.
# A machine with Python 3.11+ is enough for `make start` and `make check`; `make test` sees to the rest itself.

PYTHON ?= python3
BIN    := .venv/bin
PYTEST := $(BIN)/python -m pytest
# What each run of tests took, for `make test-times`.
TIMES  := --junit-xml=.cache/test-times
# The files that take minutes come first, so that no worker is left with one of them in the end. There are three workers,
# since these tests wait for half of their time.
LONGEST_FIRST := tests/history tests/pipelines tests/cluster tests/console tests/crash tests/compat tests/work
# Compiled modules are kept, also where an image forbids it: a run loads a thousand of them in each of its processes.
export PYTHONDONTWRITEBYTECODE :=
# A download that breaks off is gone on with: PySpark has 400 MB.
export PIP_RETRIES ?= 10
export PIP_RESUME_RETRIES ?= 10

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help start check types unit-tests unit-tests-1 unit-tests-2 test test-times docs demo matrix permissions secure-live soak queues properties simulate fuzz interleave failing-calls bench bench-quick release clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

start: .venv/.broker  ## run a broker on localhost:9092 with its data in ./data
	@exec $(BIN)/barnabas start --listen localhost:9092 --data ./data

check: .venv/.dev  ## the fast part: format, lint, types, layers, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j 3 types unit-tests

# These run beside each other: tests wait now and then, and mypy without its cache takes most of a minute.
types: .venv/.dev
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two halves that take about as long. Workers of pytest-xdist would each load all the tests and send a message for every
# step of each: a fifth of the processor time of thousands of tests that take milliseconds.
FIRST_HALF := tests/unit/broker tests/unit/net tests/unit/project
UNIT_TESTS := $(PYTEST) -q -p no:xdist -m "not slow" -o tmp_path_retention_policy=failed

unit-tests: unit-tests-1 unit-tests-2

unit-tests-1: .venv/.dev
	$(UNIT_TESTS) -o cache_dir=.pytest_cache/1 $(TIMES)/unit-1.xml $(FIRST_HALF)

unit-tests-2: .venv/.dev
	$(UNIT_TESTS) -o cache_dir=.pytest_cache/2 $(TIMES)/unit-2.xml $(FIRST_HALF:%=--ignore=%) tests/unit

test: .venv/.dev  ## everything: the fast part, properties and simulations, then real clients, real Kafkas and crashes
	sh scripts/prerequisites.sh
	$(MAKE) .venv/.kerberos
	$(MAKE) check
	$(MAKE) docs
	$(PYTEST) -n 2 -m slow -o tmp_path_retention_policy=failed $(TIMES)/unit-slow.xml tests/unit
	$(PYTEST) -n 2 $(TIMES)/in-process.xml tests/properties tests/simulation tests/fuzz tests/interleavings tests/failing_calls
	$(BIN)/python -m tests.support.old_spark & $(BIN)/python -m tests.support.jars && $(BIN)/python -m tests.support.class_archives && wait $$!
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder $(TIMES)/processes.xml $(LONGEST_FIRST)

test-times: .venv/.dev  ## what the last `make check` or `make test` spent its time on (ARGS="--depth 3 --longest 50")
	@$(BIN)/python scripts/test_times.py $(ARGS)

docs: .venv/.dev  ## the site of docs/ with search and the Python classes, in ./site; a link that leads nowhere fails
	@$(BIN)/zensical build --strict --config-file mkdocs.yml

demo: .venv/.dev  ## a day of orders: produced, joined, summed up by hour, loaded to Delta and drawn (needs Java 17+)
	@$(BIN)/python -m examples.orders $(ARGS)

matrix: .venv/.dev  ## real clients × mechanisms × TLS, also Spark and franz-go (needs Go); see tests/matrix
	sh scripts/prerequisites.sh
	$(BIN)/python -m tests.support.jars
	$(BIN)/python -m tests.matrix
	$(BIN)/python -m tests.matrix.shares

permissions: .venv/.dev  ## 100,000 random questions beside Kafka's StandardAuthorizer, and every API under 60 random sets of ACLs beside Kafka
	sh scripts/prerequisites.sh
	$(BIN)/python -m tests.support.jars
	BARNABAS_TEST_AUTHORIZER_QUESTIONS=100000 BARNABAS_TEST_PERMISSION_SETS=60 \
		$(PYTEST) -q -p no:xdist --durations=2 tests/compat/java/test_authorizer.py tests/compat/same/test_permissions.py \
		tests/compat/same/test_token_permissions.py

soak: .venv/.dev  ## clusters under random faults for hours (ARGS="--minutes 60"); prints seeds and what it found
	sh scripts/prerequisites.sh
	$(BIN)/python -m tests.support.jars
	$(BIN)/python -m tests.history.soak $(ARGS)

queues: .venv/.dev  ## a queue with real workers under random faults, seed by seed (ARGS="--seeds 200"); see tests/history/queues
	sh scripts/prerequisites.sh
	$(BIN)/python -m tests.support.jars
	$(BIN)/python -m tests.history.queues $(ARGS)

# Each round has other random examples; the one that breaks a rule is printed, with its seed.
properties: .venv/.dev  ## machines, formats and logs with other random values than `make test` (ROUNDS=10 SEED=1)
	@first=$(or $(SEED),$$(date +%s)); for seed in $$(seq $$first $$((first + $(or $(ROUNDS),10) - 1))); do \
		echo "seed $$seed"; \
		$(PYTEST) -q -n 2 --hypothesis-profile=search --hypothesis-seed=$$seed tests/properties $(ARGS) || exit; \
	done

simulate: .venv/.dev  ## whole brokers in one process under seeded faults (ARGS="--seeds 1000 --jobs 2"); see tests/simulation/whole
	$(BIN)/python -m tests.simulation.whole $(ARGS)

fuzz: .venv/.dev  ## hostile bytes from a seed (ARGS="frames|sockets|batches|files|tree|queues --count N --seed S"); prints figures
	@$(BIN)/python -m tests.fuzz $(ARGS)

interleave: .venv/.dev  ## two threads on one log in every order (ARGS="--switches 2"); see tests/interleavings
	@$(BIN)/python -m tests.interleavings $(ARGS)

failing-calls: .venv/.dev  ## every call to the file system fails once (ARGS="--step 5", "--trial"); see tests/failing_calls
	@$(BIN)/python -m tests.failing_calls $(ARGS)

secure-live: .venv/.dev  ## three brokers under load go from plaintext to TLS, logins and rules without downtime; prints figures
	$(BIN)/python -m tests.cluster.securing

bench: .venv/.dev  ## compare with Apache Kafka, side by side on this machine
	sh scripts/prerequisites.sh
	$(BIN)/python -m bench

bench-quick: .venv/.dev  ## a short look at the same comparison
	sh scripts/prerequisites.sh
	$(BIN)/python -m bench --quick

release: .venv/.dev  ## build sdist and wheel, and try the wheel in a clean environment (VERSION=0.2.0 sets it first)
	@$(BIN)/python scripts/release.py $(VERSION)

clean:  ## remove the environment, caches and downloads; ./data stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The two stamps say that .venv holds what pyproject.toml names: what a user needs, and what a contributor needs.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Barnabas needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1): try make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.broker: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[clients]'
	@touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[clients,avro,protobuf,security,zookeeper,console,declarative]' --group dev
	@touch $@ .venv/.broker

# Built against the system's Kerberos, so only where scripts/prerequisites.sh has seen to that.
.venv/.kerberos: .venv/.dev
	[ "$$(uname)" != Linux ] || $(BIN)/python -m pip install --quiet --editable '.[kerberos]'
	@touch $@
