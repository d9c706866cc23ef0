# Needs only Python >= 3.10, make and git: every target sets itself up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAGE := visualprof/frontend
SOURCES := $(shell find $(PAGE)/src $(PAGE)/public -type f 2>/dev/null) $(PAGE)/package-lock.json $(PAGE)/vite.config.ts
NATIVE := visualprof/reader/native
BUILD := setup.py build_backend.py $(wildcard $(NATIVE)/*.[ch])
MODULES := $(PAGE)/node_modules/.package-lock.json
# npm in the folder of the web UI, with the Node that comes as a Python package.
NPM := $(BIN)/python -c "import sys, setup; sys.exit(setup.npm(*sys.argv[1:]))"
# Each check prints its output in one piece (GNU make from 4.0 on).
WHOLE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
PORT ?= 8040
# Tests wait for processes a third of their time, so there are three workers per two processors. Workers that have nothing
# left to do take tests of others, so that most tests of a module share its fixtures.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(8, 3 * (os.cpu_count() or 1) // 2))")
PYTEST := $(BIN)/python -m pytest -q --dist worksteal

.PHONY: gpu coverage lowest lock sbom demo dev test long check native ruff layers spelling pyright eslint prettier vue-tsc vitest unit bench release docs fixtures page types messages clean help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

gpu: $(VENV)/demo ## prove recordings, jobs and forecasts on the GPU of this machine, at most ten minutes (GPU="--device cpu": without one)
	$(BIN)/visualprof doctor --gpu --prove build/gpu --resume $(GPU)

demo: $(VENV)/demo ## install, compute every view of the sample runs, run a job, open the dashboard (CI=true: do not open it)
	$(BIN)/visualprof demo $(if $(filter true,$(CI)),--check,) $(DEMO)

dev: export VISUALPROF_TOKEN ?= $(shell $(PYTHON) -c "import secrets; print(secrets.token_urlsafe(24))")
dev: $(VENV)/dev $(MODULES) ## run the server over LOGDIR (default: the samples) and the web UI with hot reload on port 5173; Ctrl-C stops both
	@$(BIN)/visualprof $(if $(LOGDIR),--logdir $(LOGDIR),demo) --port $(PORT) & server=$$!; \
	trap 'kill $$server 2>/dev/null; wait $$server' EXIT; trap 'exit 0' INT TERM; \
	echo "web UI: http://localhost:5173/#token=$$VISUALPROF_TOKEN"; VISUALPROF_PORT=$(PORT) $(NPM) run --silent dev

test: $(VENV)/dev $(VENV)/runtimes $(PAGE)/dist/index.html ## run the tests of Python, the web UI and the browser (the browser's are skipped without Chromium)
	$(PYTEST) -n $(WORKERS) -m "not long" $(TEST_OPTIONS)
	$(NPM) test

long: $(VENV)/dev $(VENV)/runtimes $(PAGE)/dist/index.html ## run the slow tests: kills, mutations, conversions
	$(PYTEST) -n $(WORKERS) -m "long or hypothesis" --hypothesis-profile thorough

check: $(VENV)/dev $(MODULES) ## run the quick checks in parallel: style, types, layers, spelling, unit tests of Python and the web UI
	@NO_COLOR=1 $(MAKE) --no-print-directory --keep-going -j4 $(WHOLE) unit pyright vue-tsc vitest eslint prettier ruff layers spelling native

unit:
	$(PYTEST) -n auto -rfE --ignore tests/e2e -m "not e2e and not slow and not long"

coverage: $(VENV)/dev ## measure how much of the code the unit tests run; fails below the floor of pyproject.toml
	mkdir -p build
	$(BIN)/python -m pytest -n auto -q -rfE -m "not e2e and not slow and not long" --cpu-limit 0 --cov --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml

pyright:
	$(BIN)/pyright

vue-tsc:
	$(NPM) run --silent types-check

vitest:
	$(NPM) run --silent test -- --reporter=dot

eslint:
	$(NPM) run --silent lint

prettier:
	$(NPM) run --silent format-check

ruff:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

layers:
	$(BIN)/lint-imports --no-logo

spelling:
	$(BIN)/codespell

native:
	@if command -v $(firstword $(CC)) >/dev/null; then mkdir -p build && \
	$(CC) -O2 -shared -fPIC -Wall -Wextra -Werror -o build/native.so $(NATIVE)/*.c && echo "no warnings in $(NATIVE)"; \
	else echo "$(NATIVE) is not checked: there is no $(firstword $(CC))"; fi

bench: $(VENV)/dev ## measure speed and memory with baselines into build/benchmarks.md; PEERS=1: also other tools and 10 M events, into benchmarks/results.md
	$(BIN)/python -m benchmarks.run $(if $(PEERS),--peers --huge --out benchmarks/results.md)

release: $(VENV)/dev $(PAGE)/dist/index.html ## build and check a source distribution, wheels and their SBOM in build/release; VISUALPROF_REPOSITORY is the public address
	VISUALPROF_SKIP_FRONTEND=1 $(BIN)/python -m pip install -q -e '.[dev,release]'
	$(BIN)/python release.py

docs: $(VENV)/dev ## build the documentation site in English and Chinese into build/docs/html; warnings and broken links are errors
	$(BIN)/python -m docs.site.build

fixtures: $(VENV)/pip ## download the recordings of other projects that tests read (tests/fixtures/recordings/others.csv)
	$(BIN)/python -m tests.fetch_recordings

page: $(PAGE)/dist/index.html ## build the web UI

types: $(VENV)/dev $(MODULES) ## generate the web UI's types from the API's declarations
	mkdir -p build
	$(BIN)/python -m visualprof.server.api.openapi > build/schema.json 2> build/digest
	$(NPM) run --silent types
	sed -i "1i // $$(cat build/digest)" $(PAGE)/src/api/types.ts

# The project has no lowest versions of test tools; they are installed as they are now.
LOWEST := build/lowest
lowest: $(VENV)/uv ## run the quick tests of Python with the lowest allowed version of each dependency, in an environment of its own
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	VISUALPROF_SKIP_FRONTEND=1 $(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct -e '.[cloud,mcp,notebook,onnxruntime,team]'
	$(BIN)/uv pip install --quiet --python $(LOWEST) pytest pytest-xdist hypothesis 'setuptools>=77'
	$(LOWEST)/bin/python -m pytest -n auto -q -rfE --ignore tests/e2e -m "not slow and not long" --cpu-limit 0 $(LOWEST_TESTS)

lock: $(VENV)/uv ## write requirements/*.txt: exact versions with hashes for development and for images of a team's server
	mkdir -p requirements
	for extra in dev team; do $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.10 --extra $$extra pyproject.toml -o requirements/$$extra.txt $(LOCK); done

sbom: $(VENV)/cyclonedx ## write build/sbom.cdx.json: the packages of requirements/team.txt in CycloneDX format
	mkdir -p build
	$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml -o build/sbom.cdx.json requirements/team.txt

messages: $(VENV)/dev ## extract the server's messages into the English catalog, list missing and outdated translations
	$(BIN)/python -m tests.translations

$(VENV)/pip: $(VENV)/created
	$(BIN)/python -m pip install -q --upgrade pip
	touch $@

$(VENV)/uv: $(VENV)/pip
	$(BIN)/python -m pip install -q 'uv>=0.9'
	touch $@

$(VENV)/cyclonedx: $(VENV)/pip
	$(BIN)/python -m pip install -q 'cyclonedx-bom>=7'
	touch $@

$(VENV)/created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/demo: $(VENV)/pip pyproject.toml $(BUILD) $(SOURCES)
	VISUALPROF_REBUILD=1 $(BIN)/python -m pip install -q '.[onnxruntime]'
	touch $@

# The versions are those of the lock, without its hashes: pip would try hundreds of combinations itself, for minutes.
$(VENV)/dev: $(VENV)/pip pyproject.toml requirements/dev.txt $(BUILD)
	sed -En 's/^([A-Za-z0-9].*==[^\\]*).*/\1/p' requirements/dev.txt > $(VENV)/constraints.txt
	VISUALPROF_SKIP_FRONTEND=1 $(BIN)/python -m pip install -q -e '.[dev]' -c $(VENV)/constraints.txt $(EXTRA)
	touch $@

# MegEngine has wheels for Python up to 3.10. Without such a Python or the wheels, its tests are skipped with that reason.
$(VENV)/runtimes: | $(VENV)/dev
	$(BIN)/visualprof agent install-runtime megengine==1.13.0 --folder .runtimes || echo "no MegEngine runtime: its tests are skipped"
	touch $@

$(MODULES): $(VENV)/pip $(PAGE)/package-lock.json | $(VENV)/dev
	$(NPM) ci --no-audit --no-fund
	touch $@

$(PAGE)/dist/index.html: $(MODULES) $(SOURCES)
	$(NPM) run build

clean: ## remove the output of the other targets
	rm -rf $(VENV) .runtimes $(PAGE)/dist $(PAGE)/node_modules build *.egg-info
