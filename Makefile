# Everything starts from here; `make serve` and `make test` need Python 3.11+ and nothing else.
PYTHON ?= python3
# A run starts thousands of Pythons: what one has compiled, the others take, also where the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=
VENV   := .venv
BIN    := $(VENV)/bin
SPARK  := .venv-spark
NEXT   := .venv-spark-next
SITE   := .venv-docs
ARGS   ?=
SECONDS ?= 3600
OLDEST := .venv-oldest

NEW_ENOUGH := 'import sys; print(sys.version_info >= (3, 11))'
TOO_OLD     = oncelog needs Python 3.11 or newer, and $(PYTHON) is \
	$(or $(shell { $(PYTHON) --version; } 2>/dev/null),not there); make PYTHON=... takes another

.DEFAULT_GOAL := help
SUITES := tests compat_tests spark_it
.PHONY: help serve test test-kafka record $(SUITES) minutes test-one soak test-fast test-oldest test-spark lint lint-spark bench bench-spark pipeline prove docs docs-site changelog lock clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# Whether a venv is usable: its Python starts, is new enough, and has what $(2) names.
usable = $(shell $(1)/bin/python -c 'import sys, $(2); print(sys.version_info >= (3, 11))' 2>&1 | grep -x True)
# The stamps of one that is not (made by an old Python, moved, half made) do not count.
ifneq ($(wildcard $(VENV)),)
ifeq ($(call usable,$(VENV),pip),)
.PHONY: $(VENV)/.serving
endif
endif

# What serving needs, and no more.
$(VENV)/.serving: requirements-serve.lock
	@$(if $(call usable,$(VENV),pip),,$(if $(filter True,$(shell { $(PYTHON) -c $(NEW_ENOUGH); } 2>/dev/null)),,$(error $(TOO_OLD))))
	@$(if $(call usable,$(VENV),pip),,rm -rf $(VENV) && $(PYTHON) -m venv $(VENV))
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-serve.lock
	@touch $@

# The rest: test tools (its own uv among them), and oncelog itself, to be edited. The stamps are older than what they were
# made from when they must be remade.
$(VENV)/.synced: $(VENV)/.serving pyproject.toml requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install -q --compile-bytecode --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	@touch $@

# Spark's are venvs of their own (PySpark alone is 400 MB), installed by the first one's uv.
$(SPARK)/.synced: requirements-spark.lock $(VENV)/.synced
$(NEXT)/.synced: requirements-spark-next.lock $(VENV)/.synced
$(SPARK)/.synced $(NEXT)/.synced:
	@$(if $(call usable,$(@D),json),,$(BIN)/uv venv -q --clear --no-python-downloads --python $(BIN)/python $(@D))
	@VIRTUAL_ENV=$(abspath $(@D)) $(BIN)/uv pip install -q --require-hashes -r $<
	@VIRTUAL_ENV=$(abspath $(@D)) $(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	@touch $@

serve: $(VENV)/.serving  ## a broker on 127.0.0.1:9092 (ARGS="--ephemeral ..." for more)
	@exec $(BIN)/python -m oncelog serve $(ARGS)

# Files in the order of the collection: each suite puts its longest first.
SHARED   = -n $(1) --dist loadfile --no-loadscope-reorder

# Stock clients, a JVM broker and ours share two cores: a test that fails is run once more, and the summary names it (R).
# Eight keep two cores busy, which wait for clients and brokers as much as they compute; Spark computes.
BESIDE   = $(call SHARED,$(1)) --reruns 1 -rR

# Tests of oncelog alone wait a third of their time.
ASIDE   := $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
# What a real Kafka has answered, or `asked`: tests/common/recorded/plugin.py.
KAFKA   ?= recorded

# Spark's tests stand beside the fast ones, which mind least that a processor is taken.
test: $(VENV)/.synced  ## every check and test, with stock clients, held against what a real Kafka has answered
	@$(BIN)/python .ci/parts.py tests compat_tests --beside lint-spark spark_it lint docs-site

test-kafka: $(VENV)/.synced  ## every test, and the real Kafka asked by each; whole matrices: before a release, with a new Kafka
	@KAFKA=asked $(BIN)/python .ci/parts.py $(SUITES)

record: $(VENV)/.synced  ## ask the real Kafka what has changed since it answered, and write what it says; T=FILE asks all of a file
	@KAFKA=$(if $(T),record-again,record) $(BIN)/python .ci/parts.py $(or $(firstword $(subst /, ,$(T))),$(SUITES))

# The parts of a run; T=… takes a part of a suite.
tests: $(VENV)/.synced
	$(BIN)/pytest "$(or $(T),tests)" --kafka=$(KAFKA) $(call SHARED,$(ASIDE)) --junit-xml=.runs/tests.xml $(ARGS)

compat_tests: $(VENV)/.synced
	$(BIN)/pytest "$(or $(T),compat_tests)" --kafka=$(KAFKA) $(call BESIDE,$(if $(filter recorded,$(KAFKA)),8,4)) --junit-xml=.runs/compat_tests.xml $(ARGS)

spark_it: $(SPARK)/.synced $(NEXT)/.synced
	$(SPARK)/bin/pytest "$(or $(T),spark_it)" --kafka=$(KAFKA) $(call BESIDE,2) --junit-xml=.runs/spark_it.xml $(ARGS)

minutes: $(VENV)/.synced  ## how long each folder's tests took in the last `make test`; the tables of tests/README.md and compat_tests/README.md are made of it
	@$(BIN)/python .ci/minutes.py --write

# By the path's beginning: Spark's tests have a venv of their own. One test at a time, so that its output is seen as it comes.
test-one: $(if $(filter spark_it%,$(T)),$(SPARK)/.synced,$(VENV)/.synced)  ## one folder, file or test: T=tests/log, T=tests/log/test_cleaner.py::test_…; a random test's seed again: SEED=…
	@$(if $(T),,$(error make test-one T=tests/log: a folder, a file or a test; SEED=7 takes this seed))
	$(if $(SEED),ONCELOG_SEED=$(SEED) )$(if $(filter spark_it%,$(T)),$(SPARK),$(VENV))/bin/pytest "$(T)" $(ARGS)

test-spark: lint-spark spark_it  ## Spark's connector, the pipeline and its sink (Java 17 or newer; without it they are skipped)

# An hour of search, then the log-ins; a finding is a trial with its seed, to become a test.
soak: $(VENV)/.synced  ## the long random runs: requests that cost much for SECONDS (3600), ten thousand lives of three nodes, a million log-ins, ten thousand by TLS
	$(BIN)/python -m tests.soak.costly_requests $(SECONDS)
	$(BIN)/python -m tests.soak.nodes 10000
	$(BIN)/python -m tests.security.login_fuzz 1000000
	$(BIN)/python -m tests.security.login_fuzz_tls 10000

# Some take minutes each; `python -m compat_tests.prove NAME` takes one.
prove: $(VENV)/.synced $(SPARK)/.synced  ## prove every program of the zoo whole, and remake its table in docs/how-to/mistakes.md
	$(BIN)/python -m compat_tests.prove $(ARGS)

test-fast: $(VENV)/.synced  ## the tests that need no client and no JVM
	$(BIN)/pytest tests -m "not slow" -n auto $(ARGS)

# Spark's and the tests' own tools stay as they are locked.
test-oldest: $(VENV)/.synced  ## test-fast with the oldest dependencies that are allowed
	@$(BIN)/uv venv -q --clear --no-python-downloads --python $(BIN)/python $(OLDEST)
	@VIRTUAL_ENV=$(abspath $(OLDEST)) $(BIN)/uv pip install -q --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(abspath $(OLDEST)) $(BIN)/uv pip install -q --upgrade --resolution lowest-direct -e .
	$(OLDEST)/bin/pytest tests -m "not slow" -n auto $(ARGS)

lint: $(VENV)/.synced  ## style, types, the one-way imports, dead code, words, ceilings of lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@! git grep -nE '^ *(from|import) (wire|coordinator|broker|spark_it\.sink)\b' -- '*.py' || (echo "import it from oncelog" >&2; false)
	$(BIN)/mypy
	$(BIN)/mypy -p tests -p compat_tests -p bench
	$(BIN)/lint-imports
	$(BIN)/python .ci/unasync.py --check
	$(BIN)/python .ci/dead_code.py
	$(BIN)/python .ci/install_way.py --check
	$(BIN)/python .ci/words.py
	$(BIN)/python .ci/lines.py

# And the archive of Spark's classes, which the first test would make otherwise while the others wait.
lint-spark: $(SPARK)/.synced $(NEXT)/.synced
	$(SPARK)/bin/mypy --strict --cache-dir .mypy_cache/spark spark_it
	@$(SPARK)/bin/python -m spark_it.tests.drivers

# Java is asked for first: Spark's venv takes a while.
pipeline: $(VENV)/.synced  ## a broker, events, a lake and results, with kills in the middle (ARGS="--events 100000 --folder out"; Java 17+)
	@$(BIN)/python -c 'import sys; from spark_it.session import java_missing; sys.exit(java_missing())'
	@$(MAKE) --no-print-directory $(SPARK)/.synced
	@$(SPARK)/bin/python -m spark_it demo $(ARGS)

bench: $(VENV)/.synced  ## ours and a real Kafka in turn, as ratios
	$(BIN)/python -m bench $(ARGS)

bench-spark: $(SPARK)/.synced  ## the same through Spark (ARGS="--rows 5000000 --rounds 5")
	@$(SPARK)/bin/python -m spark_it.bench $(ARGS)

docs: $(VENV)/.synced  ## remake the pages that follow from the code
	$(BIN)/python -m oncelog.broker.dispatch.apis_page > docs/reference/apis.md
	$(BIN)/python -m compat_tests.security.rights_page > docs/reference/rights.md
	$(BIN)/python -m tests.embedded.reference_page > docs/reference/testing-reference.md
	$(BIN)/python -m oncelog.broker.control_http.document > docs/reference/control-routes.md
	$(BIN)/python -m oncelog.broker.faults.schema > docs/reference/faults.schema.json
	$(BIN)/python -m tests.filters.messages_page page > docs/reference/messages.md
	$(BIN)/python -m tests.filters.messages_page module > oncelog/messages.py
	$(BIN)/python -m tests.files_page > docs/contributing/files.md
	$(BIN)/python .ci/install_way.py

# Sphinx is not one of the tests' tools.
$(SITE)/.synced: requirements-docs.lock $(VENV)/.synced
	@$(if $(call usable,$(@D),sphinx),,$(BIN)/uv venv -q --clear --no-python-downloads --python $(BIN)/python $(@D))
	@VIRTUAL_ENV=$(abspath $(@D)) $(BIN)/uv pip install -q --compile-bytecode --require-hashes -r $<
	@touch $@

docs-site: $(SITE)/.synced  ## the site of docs/, in .site/html; a warning is an error
	$(SITE)/bin/sphinx-build -q -n -W --keep-going -d .site/doctrees -b html docs .site/html

changelog: $(SITE)/.synced  ## what the next release has, from docs/changes; with VERSION=0.2.0 it moves to CHANGELOG.md
	$(SITE)/bin/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

COMPILE := $(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11 pyproject.toml

lock: $(VENV)/.synced  ## remake the lock files from pyproject.toml
	$(COMPILE) --group dev -o requirements.lock
	$(COMPILE) -c requirements.lock -o requirements-serve.lock
	$(COMPILE) --group quix -o requirements-quix.lock
	$(COMPILE) --group dev --group spark -o requirements-spark.lock
	$(COMPILE) --group dev --group spark-next -o requirements-spark-next.lock
	$(subst pyproject.toml,--group docs,$(COMPILE)) -o requirements-docs.lock

clean:  ## forget the venv and the caches
	rm -rf $(VENV) $(SPARK) $(NEXT) $(OLDEST) $(SITE) .site .runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
