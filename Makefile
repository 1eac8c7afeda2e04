# Targets of this project. Each creates .venv on a machine that has only Python 3.11+, git and make.
PY := .venv/bin/python

.PHONY: help test test-all check format docs pictures demo bench load late simulate kill soak rewind real rot planted measures race trust fleet mutants structure clean library clients site release

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | expand -t 10

# $(call install,ARGUMENTS): `pip install ARGUMENTS` into .venv, with uv if it is installed. A lock names every package, so it is
# installed with --no-deps: nothing is resolved anew, and a newer release of a package changes nothing.
define install
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet $(1); \
	else $(PY) -m pip install --quiet --disable-pip-version-check $(1); fi
endef

.venv/run: requirements-run.lock
	@echo "make: installing the $$(grep -c == $<) packages that longrein needs into .venv (some seconds, once)"
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing .venv; else python3 -m venv .venv; fi
	$(call install,--no-deps -r $<)
	@touch $@

PACKAGES := packages/longrein-context packages/longrein packages/longrein-fleet

.venv/ready: requirements.lock pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES)) .venv/run
	@echo "make: installing the $$(grep -c == $<) packages of the tests and checks, and longrein itself (up to two minutes, once)"
	$(call install,--no-deps -r $<)
	$(call install,--no-deps $(addprefix -e ,$(PACKAGES)))
	@touch $@

# Python keeps what it has compiled, also where the environment forbids it: otherwise each worker of the suite compiles
# all tests, 15 s each.
export PYTHONDONTWRITEBYTECODE =

# Four workers also on two cores: many tests wait for other processes.
PYTEST := $(PY) -m pytest -n 4 --dist worksteal -m "not scan"

test: .venv/ready  ## run every test function; of a dear one only the rows that fit (tests/costs.tsv)
	$(PYTEST) --sample

# `late` sleeps most of its time, so it runs beside the rest.
test-all: .venv/ready  ## run every case once, write tests/costs.tsv, and run `late`
	@said=$$(mktemp) && trap 'rm -f "$$said"' EXIT; $(MAKE) --no-print-directory late >"$$said" 2>&1 & late=$$!; \
	set -x; $(PYTEST) --write-costs; all=$$?; wait $$late; late=$$?; cat "$$said"; exit $$((all + late))

check: .venv/ready  ## check format, lint, types, layers, budget, and what only reads the source
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) -m lab.budget
	$(PY) -m pytest -m scan $(shell grep -rl 'mark\.scan' tests --include='test_*.py')

.venv/library: requirements-library.lock .venv/ready
	@echo "make: installing the agent frameworks for the tests of longrein.integrations (up to two minutes, once)"
	$(call install,--no-deps -r $<)
	@touch $@

# MCP servers that others wrote, for the tests.
NODE_SERVERS := everything@2026.8.31 filesystem@2026.8.31 memory@2026.8.31 sequential-thinking@2026.8.31
PYPI_SERVERS := mcp-server-fetch==2026.10.24 mcp-server-git==2026.10.19 mcp-server-time==2026.10.19

.venv/servers: .venv/ready
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $@ && uv pip install --quiet --python $@/bin/python $(PYPI_SERVERS); \
	else python3 -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check $(PYPI_SERVERS); fi
	@touch $@

.venv/node: .venv/ready
	@if command -v npm >/dev/null 2>&1; then \
	echo "make: installing MCP servers from npm for the tests"; \
	npm install --prefix $@ --no-audit --no-fund --silent $(addprefix @modelcontextprotocol/server-,$(NODE_SERVERS)) \
	|| echo "make: npm cannot install them: tests with MCP servers from npm are skipped"; \
	else echo "make: npm is missing: tests with MCP servers from npm are skipped"; fi
	@mkdir -p $@ && touch $@

# The Agent SDK in TypeScript, without the program that it brings, and the examples of the one in Python, which are in
# its source distribution only.
.venv/agent-sdk: requirements-library.lock .venv/library
	@echo "make: getting the Agent SDK in TypeScript and the examples of the one in Python for the tests (a minute, once)"
	@mkdir -p $@
	@npm install --prefix $@ --no-audit --no-fund --silent --omit=optional @anthropic-ai/claude-agent-sdk@0.3.330 \
	|| echo "make: npm is missing or cannot install it: the tests with it are skipped"
	@sdk=$$(grep -o '^claude-agent-sdk==[0-9.]*' $<); \
	if command -v uv >/dev/null 2>&1; then pip="uv tool run --quiet pip"; else pip="$(PY) -m pip"; fi; \
	$$pip download --quiet --no-deps --no-binary :all: --dest $@ "$$sdk" \
	&& tar --extract --gzip --strip-components=1 --directory $@ --wildcards --file $@/claude_agent_sdk-*.tar.gz '*/examples' \
	|| echo "make: pip cannot get the source of $$sdk: the tests with its examples are skipped"
	@touch $@

library: .venv/library .venv/servers .venv/node .venv/agent-sdk .venv/harbor  ## install agent frameworks, agent SDKs and MCP servers of others for the tests that are skipped without them

# Agents that others wrote, for tests/standards. Each of Python has its own environment: their pins exclude each other.
AGENT_PYTHON ?= $(shell python3.12 -c 'import sys; print(sys.executable)' 2>/dev/null || ls "$$(pyenv root 2>/dev/null)"/versions/3.12*/bin/python3.12 2>/dev/null | tail -n 1 | grep . || echo python3.12)
NODE_AGENTS := acpx@0.19 node@22 \
	@openai/codex@0.169.0 @earendil-works/pi-coding-agent@0.74.2 @google/gemini-cli-core@0.61.0 opencode-ai@1.18.33

# $(call agent,FOLDER,PACKAGES): install PACKAGES into an environment of their own.
define agent
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing --python $(AGENT_PYTHON) $(1) && uv pip install --quiet --python $(1)/bin/python $(2); \
	else $(AGENT_PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2); fi
endef

# Harbor, which evaluates agents in containers, for the tests of its tasks and of longrein as an agent of it. With longrein
# itself, whose class it imports.
.venv/harbor: packages/longrein/pyproject.toml .venv/ready
	@echo "make: installing Harbor with $(AGENT_PYTHON) for the tests with its tasks (a minute, once)"
	$(call agent,$@,harbor==0.26.0 $(addprefix -e ,$(PACKAGES))) \
	|| { rm -rf $@; echo "make: Harbor cannot be installed, which needs Python 3.12: the tests with it are skipped"; }
	@[ ! -d $@ ] || touch $@

clients: .venv/ready  ## install agents and clients of others (about 2 GB) for the tests of their formats and of longrein acp
	npm install --silent --no-audit --no-fund --prefix .venv/node $(NODE_AGENTS)
	$(call agent,.venv/kimi,kimi-cli==1.52.0)
	$(call agent,.venv/agents,openhands-sdk==1.44.1 deepagents==0.7.32)

real: .venv/ready  ## play small tasks with a real model, which the script SETUP installs into FOLDER
	$(PY) -m lab.real_model --setup $(SETUP) $(FOLDER)

format: .venv/ready  ## format the code and fix lint
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

docs: .venv/ready  ## write the tables of docs/settings.md and docs/screen.md, and the man page
	$(PY) -m tests.settings_page
	$(PY) -m longrein help --man > packages/longrein/longrein.1

pictures: .venv/ready  ## draw the pictures of the README and the docs (needs Chromium for the inspector's)
	$(PY) -m lab.pictures

# The docs as a site. Its generator has a venv of its own, since nothing else needs it.
.venv/site: .venv/run
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $@ && uv pip install --quiet --python $@/bin/python mkdocs-material==9.8.1; \
	else python3 -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check mkdocs-material==9.8.1; fi
	@touch $@

site: .venv/site  ## build the docs as a site in site/
	@NO_MKDOCS_2_WARNING=1 .venv/site/bin/mkdocs build --quiet --strict
	@echo "make: open site/index.html"

# The programs that build and check the packages have a venv of their own, from a lock file as every other.
.venv/release: requirements-release.lock .venv/run
	@echo "make: installing build and twine into $@ (some seconds, once)"
	@rm -rf $@ && if command -v uv >/dev/null 2>&1; then uv venv --quiet $@ && uv pip install --quiet --python $@/bin/python --no-deps -r $<; \
	else python3 -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<; fi \
	|| { rm -rf $@; echo "make: build and twine cannot be installed, so nothing is released"; exit 1; }
	@touch $@

release: .venv/release  ## build wheel and sdist in dist/, check them, and try each in a bare environment
	@.venv/release/bin/python -m tests.release --version
	@rm -rf dist
	@for package in $(PACKAGES); do .venv/release/bin/python -m build --no-isolation --outdir dist $$package || exit 1; done
	.venv/release/bin/python -m twine check --strict dist/*
	.venv/release/bin/python -m tests.release dist/*

demo: .venv/run  ## run a small real job offline, without a key; installs only what longrein needs
	@PYTHONPATH="$(CURDIR)/packages/longrein/src:$(CURDIR)/packages/longrein-context/src" $(PY) -m longrein demo

bench: .venv/ready  ## measure longrein against a minimal Python harness
	$(PY) -m lab.bench
	$(PY) -m lab.concurrency
	$(PY) -m lab.sandbox
	$(PY) -m lab.hooks
	$(PY) -m lab.mcp_start
	$(PY) -m lab.checkpoints
	$(PY) -m lab.terminal
	$(PY) -m lab.terminal_start

# Campaigns take SEEDS=COUNT, SEED=FIRST and SECONDS=LIMIT, print how to play a failed seed again, and end with one line.
CAMPAIGN = $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS))

simulate: .venv/ready  ## play random sessions in virtual time over a disk that can tear; SEEDS=N SEED=FIRST
	$(PY) -m lab.campaigns.simulation $(CAMPAIGN)

kill: .venv/ready  ## kill longrein inside commands, rewinds, checkpoints, forks, prunes and imports; SEEDS=N SEED=FIRST
	$(PY) -m lab.campaigns.kill_operations $(CAMPAIGN)

soak: .venv/ready  ## work for hundreds of requests in one session: window, memory and old contents hold; SEEDS=N SEED=FIRST
	$(PY) -m lab.campaigns.soak $(CAMPAIGN)

rot: .venv/ready  ## overwrite bytes at cells and pages of a session's database: no loss goes untold; SEEDS=N SEED=FIRST
	$(PY) -m lab.campaigns.rot $(CAMPAIGN)

planted: .venv/ready  ## plant known bugs and count the seeds until the campaigns find them; SEEDS=N at most for each
	$(PY) -m lab.campaigns.planted_bugs $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SECONDS),--seconds $(SECONDS))

rewind: .venv/ready  ## rewind after commands of the agent and edits of the user at any moment, with kills; SEEDS=N SEED=FIRST
	$(PY) -m lab.campaigns.rewind_campaign $(CAMPAIGN)

load: .venv/ready  ## run load campaigns: a thousand kills, many subagents and tasks, many writers of few files
	$(PY) -m lab.campaigns
	$(PY) -m lab.campaigns.rewind_campaign

# Tests that look at a screen. A late reader sleeps most of the time, so that more workers than cores are quicker.
SCREENS = $(shell grep -rl PseudoTerminal tests --include='test_*.py')
PLACES = $(SCREENS) tests/cli tests/headless

late: .venv/ready  ## run tests of screens with a reader that comes late, and tests that show paths in short and long folders
	@top=$$(mktemp -d /tmp/XXXX) && trap 'rm -rf "$$top"' EXIT && set -x && \
	LATE_READER_S=1.6 $(PY) -m pytest -n 12 --dist worksteal --sample --basetemp "$$top/0" $(PLACES) && \
	$(PY) -m pytest -n 4 --dist worksteal --sample --basetemp "$$top/$$(printf %080d 0)" $(PLACES)

measures: .venv/ready  ## measure the context engine against its targets; SESSIONS=FOLDER takes recorded sessions, SAMPLE=N of them (4)
	$(PY) -m lab.context
	$(PY) -m lab.cells $(if $(SESSIONS),--sessions $(SESSIONS)) --sample $(or $(SAMPLE),4) --system-share 0.25

race: .venv/library  ## race the context engine in loops of others: raw openai, LangChain, Pydantic AI, OpenAI Agents
	$(PY) -m lab.race $(RACE)

trust: .venv/ready  ## measure permissions, sandbox and secrets: fuzzed commands, racers, escapes, payloads, canaries
	$(PY) -m lab.trust $(SESSIONS)

fleet: .venv/library  ## measure fleets: killed Ray nodes, overhead, money, quota, cost a session, the store; FLEET='--kills 3 --only kills'
	$(PY) -m lab.fleet $(FLEET)

mutants: .venv/ready  ## count the one-line bugs that the suite notices in what keeps files and machine safe; SEEDS=N of them, SEED=N
	$(PY) -m lab.mutants --sources promises $(if $(SEEDS),--count $(SEEDS)) $(if $(SEED),--seed $(SEED))

structure: .venv/ready  ## print the measures of the source code: lines, functions, cycles
	$(PY) -m lab.structure

clean:  ## remove what these targets have created
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
