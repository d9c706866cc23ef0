# Needs only Python >= 3.10, make and git: every target sets itself up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAGE := visualprof/frontend
SOURCES := $(shell find $(PAGE)/src $(PAGE)/public -type f 2>/dev/null) $(PAGE)/package-lock.json $(PAGE)/vite.config.ts

.PHONY: demo test check bench page types clean help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/demo ## install, compute every view of the sample runs, run a job, open the dashboard (CI=true: without opening)
	$(BIN)/visualprof demo $(if $(filter true,$(CI)),--check,) $(DEMO)

test: $(VENV)/dev $(VENV)/runtimes $(PAGE)/dist/index.html ## all tests: Python, page, browser (skipped without Chromium)
	$(BIN)/python -m pytest -n 2 -q
	$(BIN)/python -m benchmarks.npm test

check: $(VENV)/dev ## the quick half: style, types, layers, unit tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check visualprof tests benchmarks setup.py
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -q -m "not e2e" tests/reader tests/views

bench: $(VENV)/dev ## speed and memory, with the baselines beside them; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks.run

page: $(PAGE)/dist/index.html ## build the page

types: $(VENV)/dev ## make the page's types from the API's declarations
	mkdir -p build
	$(BIN)/python -m visualprof.server.api.openapi > build/schema.json 2> build/digest
	$(BIN)/python -m benchmarks.npm run types
	sed -i "1i // $$(cat build/digest)" $(PAGE)/src/api/types.ts

$(VENV)/pip: $(VENV)/created
	$(BIN)/python -m pip install -q --upgrade pip
	touch $@

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/demo: $(VENV)/pip pyproject.toml setup.py $(SOURCES)
	VISUALPROF_REBUILD=1 $(BIN)/python -m pip install -q '.[onnxruntime]'
	touch $@

$(VENV)/dev: $(VENV)/pip pyproject.toml
	VISUALPROF_SKIP_FRONTEND=1 $(BIN)/python -m pip install -q -e '.[dev]' $(EXTRA)
	touch $@

# MegEngine has wheels for Python up to 3.10: with no such Python, or no access to them, its tests say so and are skipped.
$(VENV)/runtimes: $(VENV)/dev
	$(BIN)/visualprof agent install-runtime megengine==1.13.0 --folder .runtimes || echo "no MegEngine runtime: its tests are skipped"
	touch $@

$(PAGE)/dist/index.html: $(VENV)/dev $(SOURCES)
	VISUALPROF_REBUILD=1 $(BIN)/python -c "import setup; setup.build_page()"

clean: ## remove what the other targets made
	rm -rf $(VENV) .runtimes $(PAGE)/dist $(PAGE)/node_modules build *.egg-info
