# The verbs of this project. Each makes its own .venv on a machine that has only Python 3.11+, git and make.
PY := .venv/bin/python

.PHONY: help test check format demo bench load measures clean library

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 10

# $(call install,WHAT): `pip install WHAT` into .venv, by uv where there is one.
define install
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet $(1); \
	else $(PY) -m pip install --quiet --disable-pip-version-check $(1); fi
endef

.venv/run: requirements-run.lock
	@echo "make: installing the $$(grep -c == $<) packages that longrein runs on into .venv (some seconds, once)"
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing .venv; else python3 -m venv .venv; fi
	$(call install,-r $<)
	@touch $@

.venv/ready: requirements.lock pyproject.toml .venv/run
	@echo "make: installing the $$(grep -c == $<) packages of the tests and checks, and longrein itself (up to two minutes, once)"
	$(call install,-r $<)
	$(call install,--no-deps -e .)
	@touch $@

# Four workers also on two cores: many tests wait for other processes.
test: .venv/ready  ## the whole suite
	$(PY) -m pytest -n 4 --dist worksteal

check: .venv/ready  ## format, lint, types, layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

.venv/library: requirements-library.lock .venv/ready
	@echo "make: installing the agent frameworks that longrein.integrations is tried against (up to two minutes, once)"
	$(call install,-r $<)
	@touch $@

library: .venv/library  ## the agent frameworks that longrein.integrations is tried against; `test` skips those that are not there

format: .venv/ready  ## what `check` asks for, done
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

demo: .venv/run  ## a real small job, offline, no key; installs what longrein runs on and no more
	@PYTHONPATH="$(CURDIR)/src" $(PY) -m longrein demo

bench: .venv/ready  ## longrein beside the least a Python harness can cost
	$(PY) benchmarks/bench.py
	$(PY) -m benchmarks.concurrency

load: .venv/ready  ## campaigns: a thousand kills, storms of subagents and tasks, many writers of few files
	$(PY) -m tests.load

measures: .venv/ready  ## the measures of the context engine, with what is to be reached
	$(PY) -m benchmarks.context

clean:  ## remove what these verbs have made
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
