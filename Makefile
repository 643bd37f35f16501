# ctrl: make many machines feel like one systemd. `make help` lists what there is.
PREFIX  ?= /usr
DESTDIR ?=
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

export CGO_ENABLED = 0
LDFLAGS = -s -w -X example.org/ctrl/internal/version.stamp=$(VERSION)
RACE_PACKAGES = $(shell $(GO) list ./... | grep -v '/test/e2e$$')

bindir   = $(DESTDIR)$(PREFIX)/bin
unitdir  = $(DESTDIR)$(PREFIX)/lib/systemd
dbusdir  = $(DESTDIR)$(PREFIX)/share/dbus-1
sharedir = $(DESTDIR)$(PREFIX)/share
# dbus-daemon reads the policies of its own prefix and of /etc, and no others; polkit reads
# actions of its own prefix only.
ifeq ($(PREFIX),/usr)
policydir = $(dbusdir)/system.d
else
policydir = $(DESTDIR)/etc/dbus-1/system.d
endif

.PHONY: help build install check test demo bench bench-quick fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build ctrl-manager, ctrl-agent and ctl into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ctrl-manager ./cmd/manager
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ctrl-agent ./cmd/agent
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ctl ./cmd/ctl

install: build ## Install everything below DESTDIR and PREFIX (default: /usr)
	install -D -m 0755 -t $(bindir) bin/ctrl-manager bin/ctrl-agent bin/ctl
	install -D -m 0644 -t $(unitdir)/system units/ctrl-manager.service units/ctrl-manager.socket units/ctrl-agent.service \
		units/ctrl-proxy@.service units/ctrl-dep@.service units/ctrl-dep-unit@.service
	install -D -m 0644 -t $(unitdir)/user units/user/ctrl-manager.service units/user/ctrl-agent.service
	sed -i 's|/usr/bin/ctrl-|$(PREFIX)/bin/ctrl-|' $(unitdir)/system/ctrl-*.service $(unitdir)/user/ctrl-*.service
	install -D -m 0644 units/ctrl.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/ctrl.conf
	install -D -m 0644 -t $(policydir) units/org.example.ctrl1.conf units/org.example.ctrl1.Agent.conf
	install -D -m 0644 -t $(DESTDIR)/usr/share/polkit-1/actions units/org.example.ctrl1.policy
	install -D -m 0644 -t $(dbusdir)/interfaces $(foreach x,$(wildcard api/dbus-xml/*.xml),$(if $(findstring .internal.,$x),,$x))
	install -D -m 0644 -t $(sharedir)/doc/ctrl config/manager.conf config/agent.conf docs/dependencies.md README.md LICENSE
	install -D -m 0644 -t $(sharedir)/doc/ctrl/examples docs/examples/50-ctrl-ops.rules
	install -D -m 0644 -t $(sharedir)/man/man5 docs/man/ctrl-manager.conf.5 docs/man/ctrl-agent.conf.5
	for shell in bash zsh fish; do bin/ctl completion $$shell >bin/completion.$$shell; done
	install -D -m 0644 bin/completion.bash $(sharedir)/bash-completion/completions/ctl
	install -D -m 0644 bin/completion.zsh $(sharedir)/zsh/site-functions/_ctl
	install -D -m 0644 bin/completion.fish $(sharedir)/fish/vendor_completions.d/ctl.fish

check: ## What every change must pass: format, vet, staticcheck, generated files, units, imports
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'not formatted: run gofmt -w on these'; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@mkdir -p bin
	@if $(GO) tool govulncheck ./... >bin/vuln.txt 2>&1; then echo 'govulncheck: nothing found'; \
	elif grep -q 'dial tcp\|no such host\|fetching vulnerabilities\|connect:\|Forbidden' bin/vuln.txt; then echo 'govulncheck left out: its database cannot be reached from here'; \
	else cat bin/vuln.txt; exit 1; fi
	$(GO) run ./api/apidoc -check
	$(GO) run ./internal/config/configdoc -check
	$(GO) test -count=1 ./test/check
	$(GO) test -count=1 ./test -run 'Test(Imports|Rules|Tokens|Packages|Bus)'

test: ## All tests: tables and the whole product in one process with -race, then real systemd
	@$(GO) run -trimpath ./test/labctl check
	CGO_ENABLED=1 $(GO) test -race -timeout 8m $(RACE_PACKAGES)
	$(GO) test -trimpath -count=1 -timeout 9m ./test/e2e

demo: ## Boot a manager and three nodes in namespaces and show the main job (KEEP=1: leave them up)
	@$(GO) run -trimpath ./test/demo

bench: ## Measure, and print one table per question (JSON=FILE: write the figures there too; PART=transport, jobs, monitors or fleet)
	$(GO) run ./bench $(if $(PART),-only $(PART)) $(if $(JSON),-json $(JSON))

bench-quick: ## The same with fewer repetitions, for a glance
	$(GO) run ./bench -quick $(if $(PART),-only $(PART)) $(if $(JSON),-json $(JSON))

fuzz: ## Run every fuzz target for a while (FUZZTIME=30s each)
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),30s) $$p || exit 1; done; done

clean: ## Remove what was built
	rm -rf bin dist
