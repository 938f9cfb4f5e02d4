# The two commands of the README, and what developers need besides. Everything runs inside .venv,
# which is made on first use and made again when what it is built from changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three, for two cores: many tests wait for other processes.
WORKERS ?= 3
KERNEL := $(shell find src/headrace/kernel -name "*.pyx" -o -name "*.px[id]" -o -name "*.c" ! -name _kernel.c)

EXTRA = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")
install_extra = $(BIN)/python -c '$(EXTRA)' > $(VENV)/extra-$(1).txt && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/extra-$(1).txt

.PHONY: demo test quick lint soak bench wheel docs drawings sbom clean

demo: $(VENV)/.ready
	$(BIN)/headrace demo

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest -m "not soak" --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

# For everyday work: what needs neither Spark nor herds of processes, in about a minute.
quick: $(VENV)/.ready-test
	$(BIN)/python -m pytest -m "not soak and not spark and not processes" --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder -q

soak: $(VENV)/.ready-test
	$(BIN)/python -m pytest -m soak -s --timeout=7200

bench: $(VENV)/.ready
	$(BIN)/headrace bench queue

# A wheel and an sdist in dist/, tried in empty environments of each interpreter that is found.
wheel:
	$(PYTHON) .ci/wheel.py $(PYTHONS)

# The documentation as a site, in build/site; a broken link is an error.
docs: $(VENV)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'open build/site/index.html'

# The pictures of the documentation, after a change of docs/drawings.
drawings: $(VENV)/.ready
	$(BIN)/python docs/drawings

# What headrace[all] brings along, with versions and licences, as CycloneDX JSON: build/sbom.cdx.json.
sbom: $(VENV)/.ready-test
	$(BIN)/python .ci/sbom.py

lint: $(VENV)/.ready-lint
	$(BIN)/ruff check src tests examples docs/drawings docs/*.py setup.py .ci
	$(BIN)/ruff format --check src tests examples docs/drawings docs/*.py setup.py .ci
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py
	$(BIN)/lint-imports --no-logo
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint src/headrace/kernel
	$(BIN)/python -m mypy.stubtest headrace.kernel._kernel --allowlist src/headrace/kernel/_kernel.allowlist

$(VENV)/.ready: pyproject.toml setup.py $(KERNEL)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	$(BIN)/headrace pipeline prepare || echo 'Spark will take longer to start.'
	touch $@

# The extras alone: installing the project again would compile the kernel again.
$(VENV)/.ready-test: $(VENV)/.ready
	$(call install_extra,test)
	$(call install_extra,sbom)
	sh .ci/chrony.sh $(VENV)/chrony
	touch $@

$(VENV)/.ready-lint: $(VENV)/.ready-test
	$(call install_extra,lint)
	touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(call install_extra,docs)
	touch $@

clean:
	rm -rf $(VENV) build dist src/headrace.egg-info src/headrace/kernel/_kernel.c src/headrace/kernel/*.so
