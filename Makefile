# Everything that is done with this repository. The first run of demo, up, test or conformance builds the control plane.
CARGO ?= cargo
# Without --package, the features of dependencies are those of the whole workspace: each is built once for all targets.
E2E = $(CARGO) run --quiet --locked --bin sluice-e2e --
# Builds the control plane with Go, and at the same time what the command after it builds. Alone it is compiled in seconds.
BESIDE_GO = $(CARGO) run --quiet --locked --package sluice-controlplane --
# What `demo` and `up` run, and nothing else.
BUILD_SHOWN = $(BESIDE_GO) $(CARGO) build --locked --bin sluice --bin sluice-e2e
E2E_TEST = $(CARGO) test --locked --test e2e --
UNIT_TARGETS = --lib --bins --test it
# The last tests of `make unit`, so that it ends with the number of recordings that were not compared.
LAST_UNIT_TARGET = --test outside
RELEASE = $(CARGO) run --quiet --locked --bin sluice-release -- $(if $(IMAGE),--name "$(IMAGE)")
# The load must cost less than what is measured.
MEASURE = $(CARGO) run --release --quiet --locked --package sluice-e2e --bin sluice-e2e -- bench

.DEFAULT_GOAL := help
.PHONY: help tools demo up down unit tests test test-e2e test-rest test-all soak mutants e2e e2e-operators kueuectl-test kueuectl-compare metrics-test dashboard-test conformance switch upgrade upgrade-dump third-party bench bench-cluster bench-manager bench-sizing bench-viewers bench-ungating lint fmt crds gates settings flags frameworks chart generate expected chart-test generated commits duplicates deny image image-check release

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: Rust 1.95, by rustup (https://rustup.rs)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "cc is missing: a C compiler, such as gcc 12" >&2; exit 1; }

demo: tools ## show the main job on a real control plane, check it, leave nothing behind
	@$(BUILD_SHOWN)
	@$(E2E) demo

up: tools ## start the same cluster and leave it running; prints how to point kubectl at it and call sluice
	@$(BUILD_SHOWN)
	@$(E2E) up

down: ## stop it
	@$(E2E) down

unit: tools ## unit, law and contract tests; no control plane; its last line says how many recordings of Kueue were not compared
	$(CARGO) test --locked $(UNIT_TARGETS)
	$(CARGO) test --locked $(LAST_UNIT_TARGET)

tests: tools ## build all tests, and the control plane at the same time; nothing that runs tests builds anything more
	@$(BESIDE_GO) $(CARGO) test --locked --no-run $(UNIT_TARGETS) $(LAST_UNIT_TARGET) --test e2e --test dashboard

test: tools ## unit, and the core of the end-to-end tests on a real control plane
	@$(BESIDE_GO) $(CARGO) test --locked --no-run $(UNIT_TARGETS) $(LAST_UNIT_TARGET) --test e2e
	$(MAKE) unit
	$(E2E_TEST) --tier core

test-e2e: tools ## all end-to-end tests but soak in one run: core, faults, load and whole matrices; PART=1/3: a third of what is not core
	$(E2E_TEST) --tier core --tier full $(if $(PART),--part $(PART))

test-rest: tools ## what `make test` leaves out: faults, load and whole matrices of the end-to-end tests, pages in a browser; PART=1/3: a third of the former
	$(E2E_TEST) --tier full $(if $(PART),--part $(PART))
	$(MAKE) dashboard-test

test-all: tests unit test-e2e dashboard-test ## everything but soak

soak: ## the laws for a long time, then faults at their full length; TIMES=N multiplies cases, PROPTEST_RNG_SEED=N replays a failure
	SLUICE_SOAK=$(or $(TIMES),100) $(CARGO) test --locked --test it -- laws:: topology::i21_ sim::user_edits::i11_ --include-ignored --nocapture
	$(E2E_TEST) --tier soak $(CASE)

mutants: ## a sample of mutants of quota, queue and choice of victims, judged by the laws (cargo install cargo-mutants --locked); SHARD=K/N
	nice $(CARGO) mutants --package sluice-core --test-package sluice-core --test-package sluice --jobs 1 --sharding round-robin --shard $(or $(SHARD),0/4) --output target/mutants \
		--file 'core/src/quota/*.rs' --file 'core/src/queue/*.rs' --file 'core/src/scheduler/preemption/*.rs' -- --locked --test it laws::

e2e: tools ## the end-to-end tests alone; CASE=WORD runs those whose names contain it; KUBERNETES=1.33|1.37: some on this version
	$(if $(KUBERNETES),SLUICE_KUBERNETES="$(KUBERNETES)") $(E2E_TEST) $(or $(CASE),$(if $(KUBERNETES),--tier versions))

e2e-operators: tools ## jobs with the real operators of their kinds, built from their Go modules; KIND=word: kinds whose names contain it
	@$(E2E) operators $(if $(KIND),--kind "$(KIND)")

kueuectl-test: tools ## Kueue's own tests of kueuectl with this program in its place, from their Go module; CASE=word
	$(CARGO) build --locked --bin sluice
	@e2e/kueuectl/run.sh tests $(if $(CASE),"$(CASE)")

kueuectl-compare: tools ## what kueuectl and this program print, command by command, on the cluster of KUBECONFIG, such as that of `make up`
	$(CARGO) build --locked --bin sluice
	@e2e/kueuectl/run.sh compare

metrics-test: tools ## alerts and dashboards with a real Prometheus (from the PATH, or Debian's package): each value, and each alert in its fault
	$(CARGO) test --locked --test metrics -- $(CASE)

dashboard-test: ## pages of the dashboard in a real browser (chromium and chromium-driver of Debian); CASE=word, SLUICE_FULL=1 for all ways to show them
	$(CARGO) test --locked --test dashboard -- $(CASE)

conformance: tools ## replay recorded decisions, API answers and lives of jobs, those of tests/recorded first; ONLY=decisions|api|jobs CASES=DIR SUITE=NAME PART=1/3 (of the lives) SHOW=N
	@$(E2E) conformance $(if $(ONLY),--only "$(ONLY)") $(if $(CASES),--cases "$(CASES)") $(if $(SUITE),--suite "$(SUITE)") $(if $(PART),--part $(PART)) --show $(or $(SHOW),0)

switch: tools ## switch recorded clusters from Kueue in place and judge what changed, on machines that have them; STORE=v0.19.2 WAY=to|back
	@$(E2E) switch $(if $(STORE),--store "$(STORE)") $(if $(WAY),--way "$(WAY)")

upgrade: tools ## build the versions that wrote the dumps of e2e/upgrades; each of them and this one replace each other, up and back
	for commit in $$(ls e2e/upgrades); do test -x target/upgrades/$$commit/sluice || { \
		git worktree add --force --detach target/upgrades/tree $$commit && mkdir -p target/upgrades/$$commit && \
		(cd target/upgrades/tree && $(CARGO) build --locked --bin sluice --target-dir ../build) && \
		cp target/upgrades/build/debug/sluice target/upgrades/$$commit/ && \
		git worktree remove --force target/upgrades/tree; } || exit 1; done
	SLUICE_OLDER_BUILDS=target/upgrades $(E2E_TEST) --tier older --lanes 1

upgrade-dump: tools ## write what this version stores of every kind in every state to e2e/upgrades, for later versions to take over
	SLUICE_UPGRADE_DUMP=e2e/upgrades/$$(git log -1 --format=%h -- core views src config crds Cargo.lock) \
		$(E2E_TEST) upgrade_dumps::states_are_written --lanes 1

third-party: tools ## check the controller of another project against docs/third-party-workloads.md; JOB=FILE KUBECONFIG=FILE, that of `make up`; ARGS=...
	@test -n "$(JOB)" || { echo "usage: make third-party JOB=FILE [KUBECONFIG=FILE] [ARGS='--reaction 60 --node-label pool=batch']" >&2; exit 1; }
	@$(E2E) third-party --job "$(JOB)" $(if $(KUBECONFIG),--kubeconfig "$(KUBECONFIG)") $(ARGS)

bench: ## benchmarks of the engine
	$(CARGO) bench --locked --package sluice

bench-cluster: ## a burst of 1,000 Jobs; or SCENARIO=baseline|large|tas CONTROLLER=path, a load on etcd and kube-apiserver
	@$(MEASURE) $(if $(SCENARIO),load --scenario $(SCENARIO) $(if $(CONTROLLER),--controller "$(CONTROLLER)"),burst)

bench-manager: ## memory and start with 15,000 pending Workloads, and with 40,000 pods; webhooks at 1,000 reviews a second
	@$(MEASURE) pending
	@$(MEASURE) start
	@$(MEASURE) webhooks

bench-sizing: ## memory, CPU and start of a replica with 1,000 to 100,000 pending Jobs in 10 and in 1,000 queues
	@$(MEASURE) sizing

bench-viewers: ## pages of the dashboard with 50 viewers, 100,000 pending Jobs and 1,000 queues, and what open pages cost; ARGS="--clickers 4": what users who click simulations cost cycles and reviews
	@$(MEASURE) viewers $(ARGS)

bench-ungating: ## from admission to the last gate gone: 100 pod groups of 30, and a JobSet of 3,000 pods with a topology, beside bare patches; ARGS="--groups 10 --jobs 3"
	@$(MEASURE) ungating $(ARGS)

image: tools ## the image as an OCI archive with its SBOM in dist/, without docker; IMAGE=registry/name
	@$(RELEASE) image

image-check: tools ## build the image in two target folders and compare the digests
	@$(RELEASE) check

release: tools ## image, SBOM, install.yaml and chart with the image by digest, changelog and checksums in dist/; VERSION=x.y.z, that of Cargo.toml; IMAGE=registry/name; KEY=file signs it
	@test -n "$(VERSION)" || { echo "usage: make release VERSION=x.y.z" >&2; exit 1; }
	@$(RELEASE) release --version "$(VERSION)" $(if $(KEY),--key "$(KEY)") $(if $(BUILDER),--builder "$(BUILDER)")

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: ## format
	$(CARGO) fmt --all

crds: ## generate crds/ and the patches of config/v1beta1 from the types
	$(CARGO) run --quiet --locked --bin sluice -- crds --write crds
	$(CARGO) run --quiet --locked --bin sluice -- crds --v1beta1 --write config/v1beta1/definitions
	$(MAKE) chart

gates: ## write docs/feature-gates.md from the table of feature gates
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --test it settings::feature_gates::generated_

settings: ## write docs/configure.md from the table of settings
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --test it settings::configure::generated_

flags: ## write docs/flags.md from the arguments of the manager
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --lib cli::manager::args::tests::generated_

frameworks: ## write the webhooks, roles and lists of job kinds from the table of frameworks
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --test it manifests::frameworks::generated_
	$(MAKE) chart

chart: ## write the parts of the Helm chart that come from config/, crds/, dashboards/ and the table of frameworks, and the table of docs/helm.md
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --test it manifests::chart::generated_

generate: ## write all generated files: those of crds, gates, settings, flags, frameworks and chart
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --lib --test it -- ::generated_ --skip chart::
	$(MAKE) chart

expected: ## write all expected texts of the command line and pages of the dashboard; read the difference before it is committed
	SLUICE_WRITE=1 $(CARGO) test --quiet --locked --test it -- ::expected_

chart-test: tools ## render the Helm chart, compare it with config/, install, upgrade, roll back and uninstall it on a real control plane
	@$(E2E) chart-test

generated: generate ## fail if a generated file is stale
	git diff --exit-code -- crds config charts docs README.md

commits: ## name commits with more than 1,000 added lines, or more than 150 without a body; tests, generated and recorded files do not count
	@.ci/commits.py

duplicates: ## name crates that the build compiles more than once, with the features of each time; BUILD="test --no-run" for another build
	@.ci/duplicates.py $(BUILD)

deny: ## licences, sources, bans, duplicate versions and advisories of the dependencies; ADVISORIES=optional: pass if their database cannot be had
	$(CARGO) deny --locked check bans licenses sources
	@if $(CARGO) deny --locked fetch db; then \
		$(CARGO) deny --locked check advisories; \
	elif [ "$(ADVISORIES)" = optional ]; then \
		echo "WARNING: advisories: NOT CHECKED, their database cannot be fetched (ADVISORIES=optional)" >&2; \
	else \
		echo "advisories: their database cannot be fetched, so they are not checked; ADVISORIES=optional accepts that" >&2; exit 1; \
	fi
