# `make demo` runs the portal from a bare checkout, `make test` tests it.
# A second demo at the same time: `make demo VAR=../second-demo`; `PORT=9000` chooses a port.
# Both need Python 3.11 or later, and a network or pip mirror for the first run.

PYTHON ?= python3
HOST ?= 127.0.0.1
VAR ?= var
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/installed-runtime
TESTING := $(VENV)/installed-test
ENGINES := .venv-engines
TRAINERS := .venv-trainers
NOTEBOOK := .venv-notebook
FAILOVER := .venv-failover
SITE := .venv-docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The pip of Python 3.11 refuses a locked package that another one asks for with its extras.
INSTALLER := pip==26.3
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
# Chooses the eighth of the tests marked `turn` (tests/turns.py); without git, all of them run.
TURN := $(if $(shell git rev-parse HEAD 2>/dev/null),--turn $(shell git rev-parse HEAD 2>/dev/null))
# Folders with tests that need nothing else.
PURE := tests/solver tests/rules tests/wire
# Files with tests that kill processes.
FAULTS = $(shell grep -rl --include='test_*.py' 'mark\.faults' tests)
CODE := portal tenants billing allocation solver agent wire gpu_client devtools tests manage.py
# Keeps what Python compiles, for all processes that the tests start (docs/decisions/tests.md).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo notebook wheel clean-demo test test-all random test-most test-faults test-pure collected test-long test-containers test-engines test-trainers mutants check audit bench screens docs openapi migration site lock packages browser slurm etcd kubectl failover
.DEFAULT_GOAL := demo

demo: $(RUNTIME)
	@exec $(BIN)/python -m devtools.local --var $(VAR) --host $(HOST) $(if $(PORT),--port $(PORT))

# JupyterLab for the notebooks of the demo's nodes, in an environment of its own (240 MB).
notebook: $(NOTEBOOK)/installed

# Patroni for a site of three machines, in an environment of its own (25 MB): docs/deployment.md.
failover: $(FAILOVER)/installed

clean-demo: $(RUNTIME)
	$(BIN)/python -m devtools.local --var $(VAR) --clean

# First what fails soon: linters, types and pure tests, next to 100 random worlds that live for days
# and 500 seeded schedules of faults. Then the tests, and next to them, file by file, those that kill
# processes: these wait for half of their time, and come first when they do not. Of the costly
# tests an eighth runs, chosen by the commit; `make test-all` runs all of them, and
# `make test-long` the longest, too.
test:
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(TESTING) failover packages
	@$(MAKE) --no-print-directory -j 2 --output-sync=target collected check random test-pure DUE="$(TURN)"
	@$(MAKE) --no-print-directory -j 2 test-most test-faults

test-most: $(TESTING)
	nice -n 5 $(BIN)/python -m pytest -q -n 3 -m "not faults and not bench and not long and not containers and not engines" $(TURN) \
	  $(PURE:%=--ignore=%)

# Says what it found at its end, so that it is not mixed with the other tests.
test-faults: $(TESTING)
	@said=$$($(BIN)/python -m pytest -q -n 2 --dist loadfile -m "faults and not long and not engines" $(TURN) $(FAULTS) 2>&1); \
	  status=$$?; echo "$$said"; exit $$status

test-all:
	@$(MAKE) --no-print-directory test TURN=

# Imports all tests once: says soon what can't be imported, and stores what it compiles. Then runs all
# migrations, for which the processes of the tests would wait.
collected: $(TESTING)
	@found=$$($(BIN)/python -m pytest -qq --collect-only -m "") || { echo "$$found"; exit 1; }
	@$(BIN)/python -m tests.servers

random: $(TESTING)
	$(BIN)/python -m tests.worlds --worlds 100 --first-seed 1
	$(BIN)/python -m tests.simulation --schedules 500 --first-seed 1

# The solver, the rules and the wire only: no Django, no server, no process. `make test` runs them
# here and nowhere else, without the costly ones that are not due.
test-pure: $(TESTING)
	$(BIN)/python -m pytest -q -p tests.turns --confcutdir=tests/solver $(PURE) $(DUE)

# For each night: all tests, the longest and the same properties on many more examples on one core,
# and 2,000 random worlds and 2,000 schedules of faults on two.
test-long: test-all
	$(BIN)/python -m pytest -q -m long
	$(BIN)/python -m tests.worlds --worlds 2000 --first-seed 1001
	$(BIN)/python -m tests.simulation --schedules 2000 --first-seed 1001

# Plants small faults, one at a time, in a copy of the tree: the tests that the list names must find
# at least 85 %. Takes half an hour on a free core. MUTANTS="--only lease" runs a part.
mutants: $(TESTING)
	$(BIN)/python -m tests.mutants --json $(VAR)/mutants.json $(MUTANTS)

# docker-compose.yml in real containers: needs podman, runc and catatonit. Base images come from
# their registry, or as root from Debian's packages (debootstrap). Skipped without podman.
test-containers: $(TESTING)
	$(BIN)/python -m pytest -q -m containers tests/containers

# The long tests on a real Slurm, on an API server of ours with kubectl, and in a real JupyterLab, and
# integrations/ in real Airflow, Prefect and Snakemake, which get an environment of their own (450 MB).
# Their lock has no hashes: pip refuses a package that is named with and without its extras.
test-engines: $(TESTING) $(ENGINES)/installed $(NOTEBOOK)/installed slurm kubectl
	$(BIN)/python -m pytest -q -m engines tests/slurm tests/kubernetes tests/browser
	ENGINES=$(ENGINES) $(BIN)/python -m pytest -q -m engines tests/integrations

# The callbacks of integrations/ in real trainers of Hugging Face and Lightning, with the PyTorch for
# processors (about 1 GB; the one of PyPI brings 5 GB of CUDA).
test-trainers: $(TESTING) $(TRAINERS)/installed
	TRAINERS=$(TRAINERS) $(BIN)/python -m pytest -q -m engines tests/integrations/test_trainers.py

check: $(TESTING)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/djlint --quiet --check --lint templates

# Known vulnerabilities of the packages for production. It asks a service on the network, so it is
# not a part of `make test`; it also fails if that service does not answer.
audit: $(TESTING)
	$(BIN)/python -m tests.audit

# The wheel for GPU nodes. Removes earlier builds, which setuptools would include.
wheel: $(TESTING)
	@rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

bench: $(TESTING)
	$(BIN)/python -m tests.bench

screens: $(TESTING) browser
	$(BIN)/python -m tests.browser.screens

# The next migration of each app whose models changed: NAME=people makes 0010_people.
migration: $(TESTING)
	DJANGO_SETTINGS_MODULE=tests.settings_for_types $(BIN)/python manage.py makemigrations $(if $(NAME),--name $(NAME))

# REST's description, as the code has it.
openapi: $(TESTING)
	DJANGO_SETTINGS_MODULE=tests.settings_for_types $(BIN)/python manage.py spectacular --validate --fail-on-warn \
	  --file docs/openapi.yaml

# What pages say of the code, drawn anew: layers, features, the data model, REST.
docs: $(TESTING) openapi
	$(BIN)/python -m tests.docs.architecture
	$(BIN)/python -m tests.docs.data_model

# The documentation as a web site in build/site; fails where a link leads nowhere.
site: $(SITE)/installed
	$(SITE)/bin/mkdocs build --quiet

lock:
	$(COMPILE) --no-generate-hashes --extra engines pyproject.toml -o requirements-engines.lock
	$(COMPILE) --extra notebook pyproject.toml -o requirements-notebook.lock
	$(COMPILE) --extra docs pyproject.toml -o requirements-docs.lock
	$(COMPILE) --extra failover pyproject.toml -o requirements-failover.lock
	$(COMPILE) --extra server --extra local --extra traces pyproject.toml -o requirements.lock
	$(COMPILE) --extra server --extra local --extra cli --extra traces --extra test pyproject.toml -o requirements-test.lock

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock | $(BIN)/python
	@echo "Installing Python packages into $(VENV), about a minute …"
	@$(INSTALL) $(INSTALLER)
	@$(INSTALL) --require-hashes -r requirements.lock
	@touch $@

$(TESTING): requirements-test.lock | $(BIN)/python
	@echo "Installing Python packages into $(VENV), about a minute …"
	@$(INSTALL) $(INSTALLER)
	@$(INSTALL) --require-hashes -r requirements-test.lock
	@touch $@ $(RUNTIME)

$(NOTEBOOK)/installed: requirements-notebook.lock
	@$(PYTHON) -m venv $(NOTEBOOK)
	@echo "Installing JupyterLab into $(NOTEBOOK), about a minute …"
	@$(NOTEBOOK)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-notebook.lock
	@touch $@

$(FAILOVER)/installed: requirements-failover.lock
	@$(PYTHON) -m venv $(FAILOVER)
	@echo "Installing Patroni into $(FAILOVER) …"
	@$(FAILOVER)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-failover.lock
	@touch $@

$(SITE)/installed: requirements-docs.lock
	@$(PYTHON) -m venv $(SITE)
	@echo "Installing MkDocs into $(SITE) …"
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

$(ENGINES)/installed: requirements-engines.lock
	@$(PYTHON) -m venv $(ENGINES)
	@echo "Installing workflow engines into $(ENGINES), about three minutes …"
	@$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-engines.lock
	@touch $@

$(TRAINERS)/installed:
	@$(PYTHON) -m venv $(TRAINERS)
	@$(TRAINERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --extra-index-url https://download.pytorch.org/whl/cpu \
	  'torch>=2.8,<3' 'transformers>=5,<6' 'lightning>=2.6,<3' 'accelerate>=1,<2'
	@touch $@

# Browser tests are never skipped: without a Chromium the run fails here with instructions.
browser:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome; do \
	    command -v "$$name" >/dev/null && exit 0; \
	  done; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; \
	  else \
	    echo "Chromium is missing. Install it (Debian: apt-get install chromium) or set CHROMIUM."; \
	    exit 1; \
	  fi

# One after the other: apt-get has a lock.
packages:
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory slurm
	@$(MAKE) --no-print-directory etcd

# A real Slurm for tests/slurm. The tests start daemons of their own; those of the packages are not
# configured and do not run. They also need root, because jobs run as other accounts.
slurm:
	@for name in slurmctld slurmd munged sbatch slurmrestd slurmdbd mariadbd; do \
	    PATH="$$PATH:/usr/sbin:/sbin" command -v "$$name" >/dev/null || missing=1; \
	  done; \
	  [ -z "$$missing" ] && exit 0; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      slurmctld slurmd slurm-client munge slurmrestd slurm-wlm-jwt-plugin slurmdbd mariadb-server-core \
	      mariadb-client-core >/dev/null; \
	  else \
	    echo "Slurm is missing. As root: apt-get install slurmctld slurmd slurm-client munge slurmrestd slurm-wlm-jwt-plugin \
	      slurmdbd mariadb-server-core mariadb-client-core"; \
	    exit 1; \
	  fi

# The keeper of the lease for tests/machines, which start three of their own.
etcd:
	@command -v etcd >/dev/null && exit 0; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      etcd-server >/dev/null; \
	  else \
	    echo "etcd is missing. As root: apt-get install etcd-server"; \
	    exit 1; \
	  fi

# A client of Kubernetes for tests/kubernetes, which start an API server of their own.
kubectl:
	@command -v kubectl >/dev/null && exit 0; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      kubernetes-client >/dev/null; \
	  else \
	    echo "kubectl is missing. As root: apt-get install kubernetes-client"; \
	    exit 1; \
	  fi
