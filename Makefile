# `make help` says what there is. Nothing is done twice: what is installed,
# built or downloaded already is left alone.

SHELL := /bin/sh
STEP  := .ci/step

# A Debian version that rises with every commit, also in a clone without tags.
VERSION := $(shell git rev-list --count HEAD 2>/dev/null | sed 's/^/0.1.0+git/' | grep . || echo 0.1.0)
ARCH    := $(shell go env GOARCH)
LDFLAGS := -s -w -X main.version=$(VERSION)
export VERSION ARCH

# The image that the shipped scenarios use.
IMAGE    := debian-13
SCENARIO := first-node

# On how many inputs each fuzz target runs in `make check`, and which specs
# `make specs` runs (a Ginkgo label filter; empty means all).
FUZZ   := 2000
LABELS :=

.PHONY: help setup build packages image check proof test specs raise bench bench-lab bench-host clean FORCE

help: ## Say what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name about; do printf '  make %-10s %s\n' "$$name" "$$about"; done

setup: ## Install what is missing on this machine (as root)
	@$(STEP) 'install what is missing' 'see the message of apt above; is this Debian 12 or 13, and are you root?' .ci/setup

build: ## Build the programs into bin/
	@$(STEP) 'programs' 'see the compiler above' $(MAKE) --no-print-directory bin/lab bin/mesh-host bin/mesh-plane

# The version is in the programs by the linker; asking git once more would fail
# in a clone that belongs to somebody else.
GOBUILD := CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '$(LDFLAGS)'
bin/lab: FORCE
	@$(GOBUILD) -o $@ ./cmd/lab
bin/mesh-host: FORCE
	@$(GOBUILD) -o $@ ./cmd/host
bin/mesh-plane: FORCE
	@$(GOBUILD) -o $@ ./cmd/plane
FORCE:

packages: build ## Build the Debian packages into dist/
	@$(STEP) 'packages' 'see the lines above' sh -c '.ci/package host && .ci/package plane'

image: build ## Build the machine image of the shipped scenarios, once
	@$(STEP) 'machine image $(IMAGE)' 'see the log named above; `bin/lab verify` tells what this machine lacks' bin/lab image build $(IMAGE)

check: ## Format, vet, lint, arrows, unit tests with the race detector, teeth, short fuzzing
	@$(STEP) 'format' 'run: gofmt -w .' sh -c 'test -z "$$(gofmt -l . | tee /dev/stderr)"'
	@$(STEP) 'module file' 'run: go mod tidy' go mod tidy -diff
	@$(STEP) 'vet' 'see the lines above' go vet ./...
	@$(STEP) 'staticcheck' 'see the lines above' go tool staticcheck ./...
	@$(STEP) 'unit tests' 'run the package named above alone: go test -race ./PACKAGE' go test -race -shuffle=on -timeout 20m ./...
	@$(MAKE) --no-print-directory proof
	@$(STEP) 'fuzz targets' 'the failing input is under testdata/fuzz: go test ./PACKAGE runs it again' .ci/fuzz $(FUZZ)

# The table it ends with is in evidence/proof.json, too.
proof: ## Kill, cut and starve the host at every operation; make every mistake in it (as root)
	@mkdir -p bin evidence
	@go test -c -o bin/proof.test ./host/apply
	@$(STEP) 'proof of the host' 'the moment is named above; the same command finds it again' sh -c \
		'cd host/apply && ../../bin/proof.test -test.run "^(TestL[0-9]|TestCaseH8|TestTeeth)" -test.timeout 20m -teeth -proof ../../evidence/proof.json'

specs: packages image ## Run the specs on real virtual machines (as root)
	@mkdir -p evidence
	@$(STEP) 'specs on real machines' 'read evidence/specs.log; consoles, journals and states of what failed are beside it' \
		.ci/specs --label-filter='$(LABELS)'

test: ## All of it: setup, check, specs; what continuous integration runs
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory specs

raise: ## Raise the first mesh and say how to look into it (as root)
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory packages image
	@if bin/lab status $(SCENARIO) >/dev/null 2>&1; then \
		echo '== $(SCENARIO) stands already; bin/lab destroy $(SCENARIO) removes it'; bin/lab status $(SCENARIO); \
	else \
		$(STEP) 'raise $(SCENARIO)' 'see the lines above; bin/lab verify tells what this machine lacks' bin/lab raise $(SCENARIO) --packages dist; \
	fi

bench: ## Run the benchmarks there are
	go test -run '^$$' -bench . -benchmem ./...

RUNS     := 5
MACHINES := 1,2,3,6
bench-lab: image ## Measure the lab, beside vagrant where it is installed; RUNS=5 MACHINES=1,2,3,6 (as root)
	@mkdir -p evidence
	@$(STEP) 'benchmark of the lab' 'see the lines above' go test -count=1 -timeout 6h -v -run TestLab ./specs/figures \
		-args -lab=$(CURDIR)/bin/lab -out=$(CURDIR)/evidence -runs=$(RUNS) -machines=$(MACHINES)

REST := 10m
bench-host: bin/mesh-host ## Measure the host, beside CFEngine, Puppet and Ansible where they are installed; RUNS=5 REST=10m (as root)
	@mkdir -p evidence
	@$(STEP) 'benchmark of the host' 'see the lines above' go test -count=1 -timeout 6h -v -run TestHost ./specs/figures \
		-args -host=$(CURDIR)/bin/mesh-host -out=$(CURDIR)/evidence -runs=$(RUNS) -rest=$(REST)

clean: ## Remove what was built here; evidence, images and raised scenarios stay
	rm -rf bin dist
