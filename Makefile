# The verbs of this project. Each makes its own .venv on a machine that has only Python 3.11+, git and make.
PY := .venv/bin/python

.PHONY: help test check format demo bench load measures clean library

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 10

.venv/ready: pyproject.toml requirements.lock
	@if command -v uv >/dev/null 2>&1; then \
	    uv venv --quiet --allow-existing .venv && uv pip install --quiet -r requirements.lock && uv pip install --quiet --no-deps -e .; \
	else \
	    python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.lock \
	    && .venv/bin/pip install --quiet --disable-pip-version-check --no-deps -e .; \
	fi
	@touch .venv/ready

test: .venv/ready  ## the whole suite
	$(PY) -m pytest -n 2 --dist worksteal

check: .venv/ready  ## format, lint, types, layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

.venv/library: .venv/ready requirements-library.lock
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet -r requirements-library.lock; \
	else .venv/bin/pip install --quiet --disable-pip-version-check -r requirements-library.lock; fi
	@touch .venv/library

library: .venv/library  ## the agent frameworks that longrein.library is tried against; `test` skips those that are not there

format: .venv/ready  ## what `check` asks for, done
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

demo: .venv/ready  ## a real small job, offline, no key
	@$(PY) -m longrein demo

bench: .venv/ready  ## longrein beside the least a Python harness can cost
	$(PY) benchmarks/bench.py
	$(PY) -m benchmarks.concurrency

load: .venv/ready  ## campaigns: a thousand kills, storms of subagents and tasks, many writers of few files
	$(PY) -m tests.load

measures: .venv/ready  ## the measures of the context engine, with what is to be reached
	$(PY) -m benchmarks.context

clean:  ## remove what these verbs have made
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
