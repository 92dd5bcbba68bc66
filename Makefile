# The one entry point: a person, `make test` and CI all run the same commands.
# Needs python3 (3.11 or newer) and Node (22 or newer) with npm on PATH; everything else is installed below.

PYTHON ?= python3

VENV   := .venv
BIN    := $(VENV)/bin/python
LOCAL  := $(BIN) -m ticketlock_local
COG    := PYTHONPATH=tests $(BIN) -m cogapp -I docs
PAGES   = $(wildcard *.md docs/*.md docs/decisions/*.md)

# More than a small machine has cores: most tests wait most of the time.
WORKERS ?= 4

# Where it is set, each of the hundreds of processes that the tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# The CDK's runtime prints a banner about Node's version: a list of major versions; for untested ones, any value.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 18,20
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := true

# Where the wheel goes, and a release.
DIST ?= dist

# Where the site goes.
SITE ?= build/site

# What continuous integration and a release run; a check of them, which Go builds where it is installed.
WORKFLOWS      ?= $(wildcard .github/workflows/*.yml)
GO             ?= go
ACTIONLINT_PIN := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
ACTIONLINT     ?= build/$(notdir $(ACTIONLINT_PIN))

PYTHON_PACKAGES := $(VENV)/.installed
NODE_PACKAGES   := node_modules/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install check lint types synth secrets sizes ratchet titles tables workflows faces pages template audit test coverage verify verify-rest docs demo bench bench-peer engines soak proof spec replay local local-down aws wheel release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(PYTHON_PACKAGES) $(NODE_PACKAGES) ## install the pinned packages into .venv and node_modules

# Made anew, not updated: a package that is no longer listed must not linger.
$(PYTHON_PACKAGES): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ticketlock needs Python 3.11 or newer, and $(PYTHON) is %d.%d: try make PYTHON=python3.13" % sys.version_info[:2])'
	@echo 'Installing the pinned packages of Python into $(VENV), once: a minute ...' >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN) -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(BIN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(NODE_PACKAGES): package.json package-lock.json
	@node -e 'parseInt(process.versions.node) >= 22 || console.error("Node " + process.versions.node + ": the CDK supports 22 and newer; all that is here was seen to run on 20, too.")'
	@echo 'Installing the pinned packages of Node into node_modules, once ...' >&2
	npm ci --no-audit --no-fund --no-update-notifier
	@touch $@

PARTS := types synth secrets ratchet titles tables workflows
check: lint ## lint, formatting, generated methods, types, no secret in a tracked file, no figure of size.json grown, the commits' titles, the pages' tables, the workflows, and the synthesised template
	@[ -d .mypy_cache ] || echo 'types: the first time takes minutes; mypy keeps what it finds in .mypy_cache' >&2
	@$(MAKE) --no-print-directory --jobs=2 $(PARTS:%=%-told)

# The parts of `check`, two at a time; each tells when it has passed.
%-told:
	@began=$$(date +%s); echo '$*: begins' >&2; $(MAKE) --no-print-directory $* && \
		echo "$*: passed after $$(($$(date +%s) - began)) s" >&2

lint: install
	$(BIN) -m ruff check
	$(BIN) -m ruff format --check
	$(LOCAL) check-faces
types: install
	$(BIN) -m mypy
synth: install
	$(LOCAL) check-template
# Without verification, which would send a finding to the service whose secret it may be.
secrets: install
	@if [ -e .git ]; then \
		files=$$(git ls-files) && [ -n "$$files" ] && \
		$(VENV)/bin/detect-secrets-hook --no-verify --baseline .secrets.baseline $$files; \
	else echo 'NOT SEARCHED FOR SECRETS, because this is not a git checkout' >&2; fi

ratchet: install
	@if [ -e .git ]; then PYTHONPATH=tests:functions $(BIN) -m tools.house --check; \
	else echo 'NOT COMPARED WITH size.json, because this is not a git checkout' >&2; fi

# Of the commits since this one; a shallow clone may have the last one alone.
TITLES_SINCE := 88f939a6
titles:
	@if [ -e .git ]; then \
		of=-1; if git rev-parse --quiet --verify $(TITLES_SINCE)^{commit} >/dev/null; then of=$(TITLES_SINCE)..; fi; \
		git log --no-merges --format='%x01%h%x02%s%x02%b' $$of | awk 'BEGIN { RS = "\001"; FS = "\002" } \
			NR > 1 && (length($$2) > 72 || $$3 !~ /[^[:space:]]/) { bad = 1; print "COMMIT " $$1 " (" $$2 \
			"): a title of at most 72 characters, and a body that says why" } END { exit bad }'; \
	else echo 'NO TITLES CHECKED, because this is not a git checkout' >&2; fi

sizes: install ## how large the project is, beside its goals; a figure that fell is written into size.json
	@PYTHONPATH=tests:functions $(BIN) -m tools.house $(ARGS)

tables: install
	$(COG) --check --diff --verbosity=0 --check-fail-msg='make pages writes them' $(PAGES)

# Without their databases of known actions, which need a network. actionlint's own calls of shellcheck and pyflakes are
# off: their answers would depend on what else is installed.
workflows: install
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(VENV)/bin/zizmor --offline --quiet --strict-collection --persona pedantic $(WORKFLOWS)
	@if [ -x $(ACTIONLINT)/actionlint ] || GOBIN=$(abspath $(ACTIONLINT)) $(GO) install $(ACTIONLINT_PIN); then \
		$(ACTIONLINT)/actionlint -shellcheck= -pyflakes= $(WORKFLOWS); \
	else echo 'WORKFLOWS NOT CHECKED BY ACTIONLINT, because Go is not here or cannot build it' >&2; fi

pages: install ## write the tables in the pages that docs/tables generates from the code
	$(COG) -r --verbosity=1 $(PAGES)

faces: install ## write the methods for tasks that differ from those for threads by `await` alone
	$(LOCAL) faces

# The lists include all dependencies, so nothing is left to resolve. A mirror may answer "nothing known" to every
# question, so each source is first asked about a package with well-known vulnerabilities; without an answer, the audits
# after it fail too.
PIP_AUDIT := $(BIN) -m pip_audit --vulnerability-service osv --strict --no-deps --disable-pip --progress-spinner off
NPM_AUDIT := npm audit --package-lock-only --no-update-notifier
LISTS     := $(wildcard functions/requirements.txt infra/*/*/*requirements.txt tests/*/*requirements.txt \
	benchmarks/*requirements.txt benchmarks/*/*requirements.txt)

audit: install ## known vulnerabilities of what is pinned; fails if no database answers
	@rm -rf build/audit && mkdir -p build/audit
	@echo jinja2==2.4.1 >build/audit/known.txt
	@! $(PIP_AUDIT) --requirement build/audit/known.txt >/dev/null 2>&1 || \
		{ echo 'NOT AUDITED: OSV knows no advisory about jinja2 2.4.1, which has several' >&2; exit 1; }
	@printf '{"name": "known", "lockfileVersion": 3, "packages": {"": {"dependencies": {"lodash": "4.17.0"}}, %s}}' \
		'"node_modules/lodash": {"version": "4.17.0"}' >build/audit/package-lock.json
	@echo '{"name": "known", "dependencies": {"lodash": "4.17.0"}}' >build/audit/package.json
	@! (cd build/audit && $(NPM_AUDIT)) >/dev/null 2>&1 || \
		{ echo 'NOT AUDITED: the npm registry knows no advisory about lodash 4.17.0, which has several' >&2; exit 1; }
	@$(BIN) -m pip freeze --all --exclude-editable >build/audit/installed.txt
	@for list in build/audit/installed.txt $(LISTS); do \
		echo $$list; $(PIP_AUDIT) --requirement $$list || exit 1; done
	$(NPM_AUDIT)

test: check ## what a contributor waits for: check, then every promise at least once, on this machine alone
	$(BIN) -m pytest --numprocesses $(WORKERS) -m "not verify or always"

coverage: install ## the lines and branches of src that the tests of `make test` do not run; fails if size.json says fewer
	$(BIN) -m pytest --numprocesses $(WORKERS) -m "not verify or always" \
		--cov=ticketlock --cov-branch --cov-report=json:build/coverage.json
	@PYTHONPATH=tests:functions $(BIN) -m tools.house --uncovered build/coverage.json

verify: test verify-rest ## test, then all the other tests

verify-rest: install ## what `make test` leaves to `make verify`
	$(BIN) -m pytest --numprocesses $(WORKERS) -m "verify and not always"

docs: install ## the site: the pages, and the reference of the Python API from its docstrings, into build/site
	rm -rf $(SITE)
	$(BIN) -m sphinx --fail-on-warning --keep-going --quiet --builder html --conf-dir docs/site \
		--doctree-dir $(SITE)/.doctrees . $(SITE)
	rm -r $(SITE)/.doctrees

template: install ## a plain CloudFormation template with its functions' code, into build/template
	$(LOCAL) template

# By pip, which fetches the build backend alone: nothing else has to be installed.
wheel: ## the package for pip, into dist
	$(PYTHON) -m venv build/pip
	build/pip/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(DIST) .

# From the commit that is checked out; a tag is checked, too, by ARGS='--tag v0.1.0'.
release: install ## the files of a release, each tried as its users will, into dist: make release ARGS='--tag v0.1.0'
	$(BIN) -m ticketlock_local.release --into $(DIST) $(ARGS)

demo: install ## workflows that wait for each other, on an emulator
	$(LOCAL) demo

# `ARGS=--quick` takes minutes, and leaves comparisons room for a busy machine; `make verify` runs that, too.
bench: install ## what a lock costs, how fast it is handed over, under load, beside another lock; what units cost
	PYTHONPATH=tests:functions POWERTOOLS_LOG_LEVEL=CRITICAL POWERTOOLS_METRICS_DISABLED=true \
	$(BIN) benchmarks/cost.py $(ARGS)
	PYTHONPATH=tests:functions POWERTOOLS_LOG_LEVEL=CRITICAL $(BIN) benchmarks/durable_cost.py $(ARGS)
	PYTHONPATH=tests:functions POWERTOOLS_LOG_LEVEL=CRITICAL $(BIN) benchmarks/mass_failure.py $(ARGS)
	PYTHONPATH=tests $(BIN) benchmarks/calls.py $(ARGS)
	PYTHONPATH=tests $(BIN) benchmarks/cold_start.py $(ARGS)
	PYTHONPATH=tests $(BIN) benchmarks/idle.py $(ARGS)
	$(BIN) benchmarks/hand_over.py $(ARGS)
	$(BIN) benchmarks/load.py $(ARGS)
	$(BIN) benchmarks/clients.py $(ARGS)
	$(BIN) benchmarks/units_cost.py $(ARGS)

bench-peer: install ## beside others, as published: the hand-over between executions, locks (Java and Go too), units of work (with Java and Maven)
	$(BIN) benchmarks/peer.py $(ARGS)
	$(BIN) benchmarks/peer_locks.py $(ARGS)
	$(BIN) benchmarks/units_peer.py $(ARGS)

engines: install ## the contract on every engine, dynoxide too where cargo can build it
	PYTHONPATH=tests $(BIN) -m tools.every_engine --numprocesses $(WORKERS)

soak: install ## load and soak: 500 waiters; clients that live long; hand-overs for 10 minutes; units with killed processes
	$(BIN) benchmarks/soak_clients.py $(ARGS)
	$(BIN) benchmarks/soak_steps.py $(ARGS)
	$(BIN) benchmarks/units_soak.py $(ARGS)

# All of one commit, whose figures are then in docs/tables/proof.json. `ARGS='--schedules 2000'` searches fewer.
proof: install ## what the guarantees rest on: schedules with faults, broken locks and units, histories, the wire, the engines
	@PYTHONPATH=tests $(BIN) -m tools.proof --workers $(WORKERS) $(ARGS)

# TLC needs Java; Maven installs it.
spec: install ## what TLC finds in spec/: every state, what breaks without each condition, whether the code does the same
	@PYTHONPATH=tests $(BIN) -m property.specs.check $(ARGS)

replay: install ## one schedule of `make proof` again, made shorter: make replay ARGS='--seed 17', or '--units --seed 17'
	@PYTHONPATH=tests $(BIN) -m property.replay $(ARGS)

local: install ## start an emulator, deploy to it, leave it running
	$(LOCAL) up

local-down: install ## stop what `make local` started
	$(LOCAL) down

# With the SDK's own settings, so AWS_PROFILE and AWS_REGION count.
aws: install ## checks in your account what is assumed of AWS, for some cents: make aws ARGS='--no-bursts'
	@PYTHONPATH=tests $(BIN) -m e2e.aws $(ARGS)

clean: ## stop `make local` and remove everything that is generated
	@if [ -f build/local.json ]; then $(MAKE) local-down; fi
	rm -rf $(VENV) node_modules build dist cdk.out .mypy_cache .pytest_cache .ruff_cache
