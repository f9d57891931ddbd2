# Each target is one thing that a developer or CI wants; `make help` lists them.
SHELL := bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
CLUSTER ?= today
PYTEST := $(PY) -m pytest
COVERAGE := $(PY) -m coverage report --format=total
# Programs in Go that live for minutes collect garbage for a fifth of their CPU time, unless they may
# have more memory than is in use.
ROOMY := GOGC=400
# What waits waits side by side. Modules of the functional tier share an API server and a world, and
# half of their time nothing computes.
UNIT := $(PYTEST) tests/unit --numprocesses=$(shell expr $$(nproc) + 1) --dist=worksteal
FUNCTIONAL := $(ROOMY) $(PYTEST) tests/functional --numprocesses=$(shell expr $$(nproc) + 2) \
	--dist=loadfile --no-loadscope-reorder
# A cluster that can't be made ready fails each of its tests: short, so that the cause is in sight.
# What tests measure is in the results as properties.
E2E := $(ROOMY) $(PYTEST) tests/e2e --tb=short --junitxml=build/e2e/results.xml
QUICK := -m "not long"
# Generated examples are the same in each run, but for those of `make test-all`.
RANDOM_EXAMPLES := --hypothesis-profile=random
# Of the core of the end-to-end tier each cluster has a process; the long tests measure too much.
SIDE_BY_SIDE := --numprocesses=2

# The tests start Python some thousand times, and compiling a charm's modules takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all lint format unit functional e2e integration bench \
	testbed-up testbed-down pack rock release-check publish-local docs requirements changelog clean \
	root python registry

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## Prepare this machine: Debian packages, Python environment, Go programs, images
	@testbed/setup.sh all

python:
	@testbed/setup.sh python

demo:  ## Run a training job without and with the charm on a real node (CLUSTER=today|tomorrow)
	@testbed/setup.sh demo
	@$(PY) -m demo --cluster $(CLUSTER) --report build/demo-$(CLUSTER)

# After the last tier: names the tiers in $failed and the command that repeats each of them.
report = for tier in $$failed; do echo "make: $$tier failed; to repeat it: make $$tier$(1)"; done; \
	[ -z "$$failed" ]

# Functional tests wait half of their time: they run beside the unit tests, and are shown after these.
# Nothing runs beside the nodes, whose kubelets take a container for dead that does not answer in a
# second. Ctrl-C ends all, as what runs beside has a group of processes to itself.
test: root setup lint  ## Run what CI runs: lint, unit, functional and short e2e tests
	@failed=; mkdir -p build; : > build/functional.log; \
		set -m; $(FUNCTIONAL) $(QUICK) &>> build/functional.log & beside=$$!; set +m; \
		trap 'kill -INT -- -'$$beside'; wait '$$beside'; exit 130' INT TERM; \
		$(UNIT) $(QUICK) || failed+=" unit"; \
		echo "functional tests, which began with the unit tests:"; \
		tail --follow --lines=+1 --pid=$$beside build/functional.log; \
		wait $$beside || failed+=" functional"; \
		trap - INT TERM; \
		$(E2E) $(QUICK) $(SIDE_BY_SIDE) || failed+=" e2e"; \
		$(call report)

# To see which lines run makes them slow, so that it is not for every change.
test-all: root setup lint  ## Run all tests, also long ones (PART=race: only long tests of that name)
ifdef PART
	@$(ROOMY) $(PYTEST) tests/unit tests/functional tests/e2e -m long -k '$(PART)'
else
	@failed=; $(UNIT) $(RANDOM_EXAMPLES) --cov --cov-report= || failed+=" unit"; \
		$(FUNCTIONAL) $(RANDOM_EXAMPLES) --cov --cov-append --cov-report= || failed+=" functional"; \
		echo "covered by unit and functional tests: $$($(COVERAGE)) %"; \
		$(E2E) || failed+=" e2e"; \
		$(call report, QUICK= SIDE_BY_SIDE=)
endif

lint: python  ## Run linters, type checks, spell check, documentation checks and import contracts
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/codespell
	@$(PY) docs/check.py
	@$(PY) docs/generate.py --check
	@PYTHONPATH=.:lib:src:workload .venv/bin/lint-imports --no-cache
	@.venv/bin/pyright --warnings

format: python  ## Fix and format the code with ruff
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

unit: python  ## Run the unit tests, in about two minutes
	@$(UNIT) $(QUICK)

functional: setup  ## Run the tests with a real etcd and kube-apiserver, without root
	@$(FUNCTIONAL) $(QUICK)

e2e: setup  ## Run the tests on a real node with istiod and Envoy, as root
	@$(E2E) $(QUICK) $(SIDE_BY_SIDE)

integration: python  ## Run the scenarios on a real Juju controller: set CHARM and LIFECYCLE_IMAGE
	@environment=$$($(PY) -m testbed.environments integration) \
		&& $$environment/bin/python -m pytest -c tests/integration/pytest.ini tests/integration

bench: setup  ## Run all benchmarks
	@for name in hook admission shutdown gateway pods training; do $(PY) -m bench.$$name || exit 1; done

testbed-up: setup  ## Start a real node with Istio (CLUSTER=today|tomorrow)
	@$(PY) -m testbed up --wait $(if $(filter today,$(CLUSTER)),--classic-sidecars)

testbed-down:  ## Stop that node
	@$(PY) -m testbed down

pack: python  ## Build the .charm file into build/ with charmcraft (RELEASE=1: check that it can be published)
	@$(PY) -m testbed.charmcraft --output build $(if $(RELEASE),--release)
	@$(PY) -m testbed.sbom build/istio-integrator.charm

rock: python  ## Build the workload's image with rockcraft, a snap that needs LXD
	@cp requirements/workload.txt workload/requirements.txt
	@cp --recursive lib/integrator_contract workload/
	@cd workload && rockcraft pack --verbosity=brief
	@mkdir -p build && mv workload/*.rock build/
	@rm --recursive workload/requirements.txt workload/integrator_contract
	@$(PY) -m testbed.sbom build/*.rock

release-check: python  ## Print what is missing to publish a release
	@$(PY) -m testbed.release

# The tag follows the image's content, so that Juju and the nodes notice each build. Registries on this
# machine speak HTTP. Only charmcraft needs root, as it installs the packages that it builds with.
SUDO = $(if $(IS_ROOT),,sudo)
TLS_VERIFY ?= $(if $(filter localhost:% 127.%,$(REGISTRY)),false,true)
publish-local: registry python  ## Build charm and image, and push the image: REGISTRY=localhost:32000
	@$(SUDO) $(MAKE) pack
	@$(if $(SUDO),sudo chown --recursive "$$(id --user)" build)
	@$(MAKE) rock
	@rock=$$(ls --sort=time build/*.rock | head --lines=1); \
		image=$(REGISTRY)/sidecar-lifecycle:$$(sha256sum "$$rock" | cut --characters=1-12); \
		rockcraft.skopeo --insecure-policy copy --dest-tls-verify=$(TLS_VERIFY) \
			oci-archive:"$$rock" docker://$$image || exit 1; \
		echo "Deploy the charm with this command:"; \
		echo "juju deploy ./build/istio-integrator.charm --trust --config restart-pods=manual" \
			"--resource lifecycle-image=$$image"

# Checked before the two builds, which take minutes.
registry:
	@case "$(REGISTRY)" in \
		"") echo "make: set the registry that the cluster pulls from, for example:" \
			"make publish-local REGISTRY=localhost:32000"; exit 1;; \
		*://*) echo "make: write REGISTRY as HOST:PORT, without $(firstword $(subst ://,:// ,$(REGISTRY)))"; exit 1;; \
	esac; \
	command -v rockcraft.skopeo > /dev/null || { \
		echo "make: rockcraft is missing; run: sudo snap install rockcraft --classic"; exit 1; }

docs: python  ## Generate pages of docs/reference, and build the site into build/docs
	@$(PY) docs/generate.py
	@rm -rf build/docs
	@$(PY) -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "build/docs/index.html"

requirements: python  ## Compile requirements/*.in into hashed pins
	@for source in requirements/*.in; do \
		.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --no-emit-find-links --no-header \
			$$source -o $${source%.in}.txt || exit 1; \
	done

changelog: python  ## Collect changes/ in CHANGELOG.md
	@.venv/bin/towncrier build --yes --version \
		"$$(PYTHONPATH=workload $(PY) -c 'import sidecar_lifecycle as it; print(it.__version__)')"

clean:  ## Remove build results and environments from the checkout
	rm -rf .venv .tox build dist reports .coverage .pytest_cache .ruff_cache .hypothesis

# Nothing is left out unseen: who has no root names the tiers that need none.
IS_ROOT := $(filter 0,$(shell id -u))
root:
ifndef IS_ROOT
	@echo "make: starting a node needs root (sudo make test); without: make lint unit functional"
	@exit 1
endif
