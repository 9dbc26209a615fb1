# Klamm: `make run` starts a broker, `make test` runs all tests. Both set up whatever they need.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

# Build environments, too, get the exact versions.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

JAR_SETS := clients clients-old broker tools streams spark
JARS := $(JAR_SETS:%=tests/support/java/%/target/.complete)

# $(call need,test command,packages): install Debian packages when root, else name them in one line.
define need
	@{ $(1); } >/dev/null 2>&1 || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        echo "Installing $(2)"; \
	        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; \
	    else \
	        echo "Please install: $(2)" >&2; exit 1; \
	    fi; }
endef

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

# ---- set-up

# Installing compiles the extensions of hatch_build.py where there is a compiler. The bytecode is written here, as in an
# installed wheel: where PYTHONDONTWRITEBYTECODE is set, a start without it takes twice as long.
$(VENV)/.run: pyproject.toml constraints.txt hatch_build.py protocol/records/_check.c
	$(call need,command -v $(PYTHON),python3 python3-venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Klamm needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	$(call need,$(PYTHON) -c "import venv; import ensurepip",python3-venv)
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@$(BIN)/python -m compileall -q broker cli client config klamm protocol storage
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(call need,command -v cc && test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h",gcc libc6-dev python3-dev)
	@echo "Installing the test tools"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,dev,pipeline]'
	@touch $@

$(VENV)/.demo: $(VENV)/.run
	@echo "Installing the demo's clients and data"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	@touch $@

tests/support/java/%/target/.complete: tests/support/java/%/pom.xml
	$(call need,command -v javac && command -v mvn,default-jdk-headless maven)
	@echo "Fetching the jars of $*"
	@rm -rf $(@D)
	@mvn --quiet --batch-mode -Dstyle.color=never --file $< package
	@touch $@

.PHONY: jars
jars: $(JARS) ## fetch the Java clients, tools and broker that the tests compare with

.PHONY: kcat
kcat:
	$(call need,command -v kcat && command -v curl,kcat curl)

# ---- the drivers of the client matrix. What needs a toolchain that is not there is left out, and its cells read n/a.

DRIVERS := tests/clients/drivers
JAVA_CLIENTS := 0.8.2.2 0.9.0.1 0.10.2.2 0.11.0.3 1.1.1 2.8.2 3.9.2 4.4.0
JAVA_DRIVERS := $(JAVA_CLIENTS:%=$(DRIVERS)/java/target/%/.complete)
TESTED_DRIVERS := $(foreach version,0.9.0.1 2.8.2 3.9.2 4.4.0,$(DRIVERS)/java/target/$(version)/.complete)
OLD_PYTHON_DRIVERS := $(foreach version,2.0.2 1.4.7,$(DRIVERS)/python/target/$(version)/.complete)

# What differs between the Java clients at compile time.
java_sources = $(DRIVERS)/java/$(if $(filter 0.8.%,$1),old/Driver.java,new/Driver.java $(call java_era_sources,$(call java_era,$1)))
java_era_sources = $(DRIVERS)/java/eras/$1/Era.java $(if $(filter 0.9 0.10,$1),,$(DRIVERS)/java/transactions/Transactions.java)
java_era = $(if $(filter 0.9.%,$1),0.9,$(if $(filter 0.10.%,$1),0.10,$(if $(filter 0.11.% 1.%,$1),0.11,2)))

$(DRIVERS)/java/target/%/.complete: $(DRIVERS)/java/pom.xml $(wildcard $(DRIVERS)/java/*/*.java $(DRIVERS)/java/eras/*/*.java)
	$(call need,command -v javac && command -v mvn,default-jdk-headless maven)
	@echo "Building the driver of the Java client $*"
	@mvn --quiet --batch-mode -Dstyle.color=never -Dkafka.version=$* $(if $(filter 0.8.%,$*),-Pscala) --file $< package
	@mkdir -p $(@D)/classes
	@javac -nowarn -Xlint:none -cp "$(@D)/jars/*" -d $(@D)/classes $(call java_sources,$*) 2>&1 | { grep -v '^Note:' || true; }
	@touch $@

$(DRIVERS)/python/target/%/.complete: $(DRIVERS)/python/requirements-%.txt
	@if command -v python3.11 >/dev/null; then \
	    echo "Setting up kafka-python $*"; \
	    rm -rf $(@D) && python3.11 -m venv $(@D) && \
	    PIP_CONSTRAINT= $(@D)/bin/python -m pip install --quiet --requirement $<; \
	else mkdir -p $(@D); fi
	@touch $@

# These know themselves what has changed.
.PHONY: go-drivers node-drivers rust-drivers
go-drivers:
	@! command -v go >/dev/null || { cd $(DRIVERS)/go && go build -o target/ ./franz ./sarama ./kafkago; }

node-drivers: $(DRIVERS)/node/node_modules/.package-lock.json
$(DRIVERS)/node/node_modules/.package-lock.json: $(DRIVERS)/node/package-lock.json
	@! command -v npm >/dev/null || { cd $(DRIVERS)/node && npm ci --silent --no-audit --no-fund; }

rust-drivers:
	@! { command -v cargo && command -v cmake; } >/dev/null || { cd $(DRIVERS)/rust && cargo build --quiet --release --locked; }

.PHONY: drivers
drivers: $(JAVA_DRIVERS) $(OLD_PYTHON_DRIVERS) go-drivers node-drivers rust-drivers ## build the drivers of all stock clients

# ---- use

.PHONY: run
run: $(VENV)/.run ## start a broker on 127.0.0.1:9092 (CONFIG=server.properties ARGS="--override key=value")
	@exec $(BIN)/klamm start $(CONFIG) $(ARGS)

.PHONY: demo
demo: $(VENV)/.demo ## stream 336,776 flights through a broker and check every record
	@exec $(BIN)/python -m examples.flights $(ARGS)

$(VENV)/.pipeline: $(VENV)/.demo
	$(call need,command -v java,default-jdk-headless)
	@echo "Installing Spark"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,pipeline]'
	@touch $@

.PHONY: pipeline-demo
pipeline-demo: $(VENV)/.pipeline ## load the flights into a Delta table, ask Spark SQL, draw the answer
	@exec $(BIN)/python -m examples.flights_table $(ARGS)

# ---- tests

.PHONY: test
test: $(VENV)/.test $(JARS) $(TESTED_DRIVERS) kcat ## all tests
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -m "not campaign" $(PYTEST)

.PHONY: quick
quick: $(VENV)/.test ## the tests that need no Java and no other process
	@$(BIN)/python -m pytest -n $(JOBS) -m "not java and not spark and not clients and not faults and not slow and not campaign" $(PYTEST)

.PHONY: clients
clients: $(VENV)/.test $(JARS) drivers kcat ## all real clients and Kafka's tools (CLIENT=sarama: one, and its row of the table)
ifdef CLIENT
	@KLAMM_CLIENT="$(CLIENT)" $(BIN)/python -m pytest tests/clients/test_matrix.py $(PYTEST)
else
	@KLAMM_MATRIX=docs/clients.md $(BIN)/python -m pytest tests/clients $(PYTEST)
endif

.PHONY: documents
documents: $(VENV)/.test $(JARS) kcat ## run every command and snippet in README.md and docs/, with Spark, too
	@$(BIN)/python -m pytest tests/docs $(PYTEST)

.PHONY: faults
faults: $(VENV)/.test $(JARS) $(TESTED_DRIVERS) kcat ## the long rounds of kill -9, bad input and mutated frames
	@KLAMM_FAULTS=long $(BIN)/python -m pytest tests/faults --timeout 7200 -rP $(PYTEST)

# The load generator, and librdkafka's own out of the crate that the Rust driver is built with.
.PHONY: bench-tools
bench-tools: rust-drivers
	@! command -v go >/dev/null || { cd bench/load && go build -o target/ .; }
	@! command -v cargo >/dev/null || test -x bench/load/target/rdkafka_performance || { \
	    out=$$(dirname "$$(dirname "$$(ls $(DRIVERS)/rust/target/release/build/rdkafka-sys-*/out/src/librdkafka.a | head -n 1)")") && \
	    mkdir -p bench/load/target && \
	    cc -O2 -w -I "$$out/src" -o bench/load/target/rdkafka_performance "$$out/examples/rdkafka_performance.c" \
	        "$$out/src/librdkafka.a" $(DRIVERS)/rust/target/release/build/zstd-sys-*/out/libzstd.a -lpthread -lz -lm -ldl -lrt; }

.PHONY: bench
bench: $(VENV)/.test $(JARS) bench-tools ## measure beside Apache Kafka (SUITE=... QUICK=1)
	@$(BIN)/python -m bench $(or $(SUITE),speed) $(if $(QUICK),--quick)

.PHONY: bench-pipeline
bench-pipeline: $(VENV)/.test $(JARS) ## measure the pipeline beside Spark's own connector (QUICK=1)
	@$(BIN)/python -m bench pipeline $(if $(QUICK),--quick)

.PHONY: check
check: $(VENV)/.test ## format, lint, English, types, import contracts, YAML, Dockerfile
	@$(BIN)/ruff format --check --quiet . || { echo "Run: ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/python -m tests.support.words
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 1
	@$(BIN)/yamllint --strict docker
	@$(BIN)/hadolint docker/Dockerfile

.PHONY: docs
docs: $(VENV)/.run ## write docs/configuration.md from the tables in config/
	@$(BIN)/python -m klamm.config.reference > docs/configuration.md

.PHONY: clean
clean: ## remove the environment, the jars and all caches; keeps ./data
	@rm -rf $(VENV) $(JAR_SETS:%=tests/support/java/%/target) $(wildcard $(DRIVERS)/*/target) $(DRIVERS)/node/node_modules build dist protocol/records/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
