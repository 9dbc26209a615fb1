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

JAR_SETS := clients clients-old broker tools
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
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-9s %s\n", $$1, $$2 }'

# ---- set-up

$(VENV)/.run: pyproject.toml constraints.txt
	$(call need,command -v $(PYTHON),python3 python3-venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Klamm needs Python 3.11 or newer; name one with PYTHON=..." >&2; exit 1; }
	$(call need,$(PYTHON) -c "import venv; import ensurepip",python3-venv)
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "Installing the test tools"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,dev]'
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
	$(call need,command -v kcat,kcat)

# ---- use

.PHONY: run
run: $(VENV)/.run ## start a broker on 127.0.0.1:9092 (CONFIG=server.properties ARGS="--override key=value")
	@exec $(BIN)/klamm start $(CONFIG) $(ARGS)

.PHONY: demo
demo: $(VENV)/.demo ## stream 336,776 flights through a broker and check every record
	@exec $(BIN)/python -m examples.flights $(ARGS)

# ---- tests

.PHONY: test
test: $(VENV)/.test $(JARS) kcat ## all tests
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadscope -m "not campaign" $(PYTEST)

.PHONY: quick
quick: $(VENV)/.test ## the tests that need no Java and no other process
	@$(BIN)/python -m pytest -n $(JOBS) -m "not java and not clients and not faults and not slow and not campaign" $(PYTEST)

.PHONY: clients
clients: $(VENV)/.test $(JARS) kcat ## real clients and Kafka's tools against a broker process
	@$(BIN)/python -m pytest tests/clients $(PYTEST)

.PHONY: faults
faults: $(VENV)/.test $(JARS) kcat ## the long rounds of kill -9, bad input and mutated frames
	@KLAMM_FAULTS=long $(BIN)/python -m pytest tests/faults --timeout 7200 -rP $(PYTEST)

.PHONY: bench
bench: $(VENV)/.test $(JARS) ## measure beside Apache Kafka (SUITE=...)
	@$(BIN)/python -m bench $(SUITE)

.PHONY: check
check: $(VENV)/.test ## format, lint, types, import contracts, YAML, Dockerfile
	@$(BIN)/ruff format --check --quiet . || { echo "Run: ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 1
	@$(BIN)/yamllint --strict docker
	@$(BIN)/hadolint docker/Dockerfile

.PHONY: docs
docs: $(VENV)/.run ## write docs/configuration.md from the tables in config/
	@$(BIN)/python -m klamm.config.reference > docs/configuration.md

.PHONY: clean
clean: ## remove the environment, the jars and all caches; keeps ./data
	@rm -rf $(VENV) $(JAR_SETS:%=tests/support/java/%/target) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
