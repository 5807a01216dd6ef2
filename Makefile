# `make help` says what there is. Nothing is done twice: what is installed,
# built or downloaded already is left alone.

SHELL := /bin/sh
STEP  := .ci/step

# A Debian version that rises with every commit, also in a clone without tags.
VERSION := $(shell git rev-list --count HEAD 2>/dev/null | sed 's/^/0.1.0+git/' | grep . || echo 0.1.0)
ARCH    := $(shell go env GOARCH)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The image that the shipped scenarios use.
IMAGE    := debian-13
SCENARIO := first-node

# How long each fuzz target runs in `make check`, and which specs `make specs` runs.
FUZZTIME := 2s
LABELS   :=

.PHONY: help setup build packages image check test specs raise bench clean FORCE

help: ## Say what there is
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name about; do printf '  make %-9s %s\n' "$$name" "$$about"; done

setup: ## Install what is missing on this machine (as root)
	@$(STEP) 'install what is missing' 'see the message of apt above; is this Debian 12 or 13, and are you root?' .ci/setup

build: bin/lab bin/mesh-host bin/mesh-plane ## Build the programs into bin/

bin/lab: FORCE
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/lab
bin/mesh-host: FORCE
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/host
bin/mesh-plane: FORCE
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/plane
FORCE:

packages: dist/.mesh-host dist/.mesh-plane ## Build the Debian packages into dist/

dist/.mesh-host: bin/mesh-host LICENSE $(wildcard cmd/host/package/*)
	@mkdir -p dist && rm -f dist/mesh-host_*.deb
	@VERSION=$(VERSION) ARCH=$(ARCH) go tool nfpm pkg -f cmd/host/package/nfpm.yaml -p deb -t dist/
	@touch $@
dist/.mesh-plane: bin/mesh-plane LICENSE $(wildcard cmd/plane/package/*)
	@mkdir -p dist && rm -f dist/mesh-plane_*.deb
	@VERSION=$(VERSION) ARCH=$(ARCH) go tool nfpm pkg -f cmd/plane/package/nfpm.yaml -p deb -t dist/
	@touch $@

image: bin/lab ## Build the machine image of the shipped scenarios, once
	@$(STEP) 'machine image $(IMAGE)' 'see the log named above; `bin/lab verify` tells what this machine lacks' bin/lab image build $(IMAGE)

check: ## Format, vet, lint, arrows, unit tests with the race detector, short fuzzing
	@$(STEP) 'format' 'run: gofmt -w .' sh -c 'test -z "$$(gofmt -l . | tee /dev/stderr)"'
	@$(STEP) 'module file' 'run: go mod tidy' go mod tidy -diff
	@$(STEP) 'vet' 'see the lines above' go vet ./...
	@$(STEP) 'staticcheck' 'see the lines above' go tool staticcheck ./...
	@$(STEP) 'unit tests' 'run the package named above alone: go test -race ./PACKAGE' go test -race -shuffle=on -timeout 20m ./...
	@$(STEP) 'fuzz targets' 'the failing input is under testdata/fuzz: go test ./PACKAGE runs it again' .ci/fuzz $(FUZZTIME)

specs: build packages image ## Run the specs on real virtual machines (as root)
	@mkdir -p evidence
	@$(STEP) 'specs on real machines' 'consoles, journals and states of what failed are under evidence/' \
		go tool ginkgo run --race --randomize-all --fail-on-pending --fail-on-empty --poll-progress-after=240s \
		--timeout=60m --no-color --output-dir=evidence --junit-report=specs.xml --label-filter='$(LABELS)' ./specs -- \
		-lab='$(CURDIR)/bin/lab' -packages='$(CURDIR)/dist' -evidence='$(CURDIR)/evidence'

test: ## All of it: setup, check, specs; what continuous integration runs
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory specs

raise: ## Raise the first mesh and say how to look into it (as root)
	@$(MAKE) --no-print-directory setup
	@$(STEP) 'programs and packages' 'see the lines above' $(MAKE) --no-print-directory build packages
	@$(MAKE) --no-print-directory image
	@bin/lab raise $(SCENARIO) --packages dist

bench: ## Run the benchmarks there are
	go test -run '^$$' -bench . -benchmem ./...

clean: ## Remove what was built here; images and raised scenarios are the lab's
	rm -rf bin dist evidence
