# The same verbs for people and for CI. Needs Python 3.11 or newer, git and make; everything else comes from PyPI.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
TOOLS ?= build
UV ?= $(shell command -v uv || echo $(TOOLS)/uv/bin/uv)
BIN := .venv/bin
STAMP := .venv/.installed

JOB ?= sales
TASK_sales := Read examples/sales.csv, total each month's sales, draw a line chart and save it
TASK_logs := Which errors grew since yesterday in examples/logs, what is the likely cause
TASK_tickets := From examples/tickets.csv write the weekly report as Markdown with a chart
TASK = $(or $(TASK_$(JOB)),$(error JOB is sales, logs or tickets))
RECORDING := scripted:examples/recordings/$(JOB).jsonl
MODEL ?= $(RECORDING)
ARGS ?=

BENCH_CACHE ?= $(HOME)/.cache/orchestrator-bench
SYSTEMS ?= floor,orchestrator,orchestrator_bare,agent_framework
REPEATS ?= 3
BENCH = $(PYTHON) bench/run.py --cache "$(BENCH_CACHE)" --systems $(SYSTEMS)

export UV_LINK_MODE := copy
export UV_PYTHON_DOWNLOADS := never
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Without byte code every start compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help install demo what-is-real jaeger test lint bench docs clean

help:
	@echo "make install   .venv with every extra and the development tools, from uv.lock"
	@echo "make demo      one real job from end to end on a recorded model; MODEL=openai:NAME or MODEL=URL for a real one,"
	@echo "               JOB=logs: why errors grew; JOB=tickets: a report, which waits for approval"
	@echo "make jaeger    a Jaeger to see traces in, by Docker, or built with Go where no engine runs"
	@echo "make test      the tests; ARGS='tests/house -x' to choose"
	@echo "make lint      formatting, ruff, pyright strict, the direction of imports"
	@echo "make bench     overhead beside a bare loop and a peer; REPEATS, SYSTEMS, BENCH_CACHE"
	@echo "make docs      the documentation: its links, and its code blocks run"
	@echo "make clean     everything that the others made in this folder"

install: $(STAMP)

$(STAMP): pyproject.toml uv.lock | $(UV)
	$(UV) sync --quiet --locked --all-extras --compile-bytecode --python "$(PYTHON)"
	@touch $@

$(TOOLS)/uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(TOOLS)/uv"
	"$(TOOLS)/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv

demo: export ORCHESTRATOR_HOME := $(CURDIR)/.demo/home
demo: what-is-real $(STAMP)
	@rm -rf .demo && mkdir -p .demo && cp -R examples .demo/examples
	@case "$(MODEL)" in http://*|https://*) $(BIN)/python examples/model_at.py "$(MODEL)" .demo/orchestrator.toml;; esac
	@say() { printf '\n$$ orchestrator %s\n' "$$1"; }; code=0; \
	say "run \"$(TASK)\""; \
	$(BIN)/orchestrator run "$(TASK)" --workspace .demo --model "$(if $(filter http://% https://%,$(MODEL)),demo,$(MODEL))" < /dev/null || code=$$?; \
	while [ $$code -eq 4 ]; do \
		printf '\n%s\n' "Nobody is there to ask, so the run is parked (exit code 4). A person says yes, and it goes on:"; \
		say "approve last --all" && $(BIN)/orchestrator approve last --all || exit; \
		say "resume last"; code=0; $(BIN)/orchestrator resume last < /dev/null || code=$$?; \
	done; [ $$code -eq 0 ] && say "runs show last" && $(BIN)/orchestrator runs show last
	@test ! -d .demo/out || { printf '\n%s\n' "Files made:"; find "$(CURDIR)/.demo/out" -type f; }
	@find .demo -path '.demo/out/*.md' -exec sh -c 'printf "\nHow %s begins:\n\n" "$$1"; head -n 12 "$$1"' - {} ';'

what-is-real:
ifeq ($(MODEL),$(RECORDING))
	@echo "The model is a recording, so no key is needed; MCP servers, tools, files, journal and spans are real."
else
	@echo "The model is $(MODEL); MCP servers, tools, files, journal and spans are real as well."
endif

jaeger:
	@if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then \
		docker compose up --detach jaeger && echo "Jaeger is at http://localhost:16686" && \
		echo "export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"; \
	else exec $(PYTHON) -m tests.support.jaeger; fi

test: $(STAMP)
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(STAMP)
	$(BENCH) setup
	rm -f bench/results.json
	$(BENCH) measure --repeats $(REPEATS) --out bench/results.json
	$(BENCH) table bench/results.json
	$(BIN)/python bench/gateway.py
	$(BIN)/python bench/serving.py

docs: $(STAMP)
	$(BIN)/pytest tests/house/test_docs.py tests/house/test_readme.py $(ARGS)

clean:
	rm -rf .venv build dist .demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache bench/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
