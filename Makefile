# Everything runs in .venv, which is created on first use by PYTHON (3.11 or newer).
# One stamp per set of extras: it is stale, and the set is installed again, when pyproject.toml is
# newer. `created` marks an environment that is whole; without it one is made from scratch.
# An editable install compiles nothing: each of the processes of a session that is not started from
# here would, where Python is told not to keep bytecode.

PYTHON ?= python3
TESTS ?=
TRIES ?= 3000
# Code for the processor of this machine; of tests/codegen without what GPUs, processes, files and other
# targets take. A test that names its processor is the same on any machine, and `make test` has run it.
HOST_TESTS := tests/codegen tests/ops -k 'not mcpu' --ignore=tests/codegen/cuda \
    $(foreach name,fork cache* open_files hostile compile_time assembly_loops host other_machines \
    special_values,--ignore-glob=*/test_$(name).py)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# A test waits a quarter of its time, for processes that it starts, which start up, sleep or end.
WORKERS ?= $(shell expr $(JOBS) '*' 3 / 2)
VENV := .venv
RUN := $(VENV)/bin/python
SOURCES := $(wildcard *.py) $(patsubst %/__init__.py,%,$(wildcard */__init__.py))

# Some shells have a HOST of their own in the environment: only `make test HOST=...` counts.
ifeq ($(origin HOST),command line)
ifneq ($(HOST),)
export TILEWRIGHT_HOST := -mcpu=$(HOST)
endif
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Each worker and child process of a run would compile the tests again.
export PYTHONDONTWRITEBYTECODE :=

APT_GET = $(if $(filter 0,$(shell id -u)),,sudo -n) apt-get
APT_INSTALL = $(APT_GET) install --yes --no-install-recommends
# Lists of packages that are old, or missing as on a new machine, are read anew.
apt_install = $(APT_INSTALL) $(1) || { $(APT_GET) update && $(APT_INSTALL) $(1); }

# Of random runs: the same each time unless another one is given.
SEED ?= 1

.PHONY: help demo test test-hosts test-frameworks test-long oldest cross-tools browser-tools vscode-tools lint
.PHONY: format bench budgets docs clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:
	@echo "make demo        tune a matrix multiplication, then build it again from the database"
	@echo "make test        run the test suite; HOST=x86-64-v2 treats this machine as that processor,"
	@echo "                 TESTS=tests/codegen runs a part"
	@echo "make test-hosts  run the tests of code again as x86-64-v2 and x86-64-v3"
	@echo "make test-long   run the tests that take long, try random programs (SEED=2: others),"
	@echo "                 and compile each operator for every kind of processor"
	@echo "make cross-tools  install what tests of ARM, RISC-V and WebAssembly run with (Debian, Ubuntu)"
	@echo "make browser-tools  install the Chromium that tests of the lab drive (Debian, Ubuntu)"
	@echo "make vscode-tools  install the VS Code that tests of the lab drive (needs npm; 0.8 GB)"
	@echo "make test-frameworks  install PyTorch, JAX and onnxruntime, and run tests that need them"
	@echo "make oldest      run the tests with the oldest libraries that are allowed"
	@echo "make lint        check style and types"
	@echo "make format      rewrite the sources in the house style"
	@echo "make bench       time the kernel suite against other libraries"
	@echo "make budgets     print what each step of the compiler costs beside its budget"
	@echo "make docs        build the site into build/site; warnings are errors"
	@echo "make notebooks   run the notebooks of examples/ and store their outputs"
	@echo "make runtime-wheel  build the wheel that a deployment installs, in build/wheels"
	@echo "make clean       remove .venv and the caches"

demo: $(VENV)/stamp-core
	$(RUN) examples/demo.py

test: $(VENV)/stamp-check
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-hosts: $(VENV)/stamp-check
	@names=$$($(RUN) -m tests.hosts) || exit 1; \
	test -n "$$names" || echo "this machine has no more than they: nothing to do"; \
	for name in $$names; do \
	    echo "as $$name"; $(MAKE) test HOST=$$name TESTS="$(HOST_TESTS)" || exit 1; done

# Releases that have a build for processors alone, where the package index offers one.
test-frameworks: $(VENV)/stamp-check
	$(RUN) -m pip install torch==2.13.0 "jax>=0.10,<0.11" "onnxruntime>=1.31,<1.32"
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal \
	    "tests/test_notebooks.py::test_a_notebook_runs_and_has_its_outputs[encode_sentences]" \
	    "tests/test_docs.py::test_page_runs[frameworks]" "tests/test_docs.py::test_page_runs[partitions]" \
	    "tests/test_docs.py::test_code_of_a_peer_runs[torch]" \
	    "tests/test_docs.py::test_code_of_a_peer_runs[jax]" \
	    $(wildcard tests/test_torch*.py tests/graph/test_torch*.py) \
	    tests/graph/test_stablehlo.py tests/graph/test_foreign.py \
	    "tests/graph/test_partition.py::test_parts_of_onnx[onnxruntime]" \
	    tests/graph/test_partition.py::test_a_dtype_that_numpy_lacks_is_refused

test-long: $(VENV)/stamp-check
	TILEWRIGHT_TEST_LONG=1 $(RUN) -m pytest -n $(WORKERS) --dist worksteal -m "long or hypothesis"
	$(RUN) -m tests.fuzz --count 600 --seconds 120 --seed $(SEED) --jobs $(JOBS) --compile-every 8
	$(RUN) -m tests.fuzz --gpu --count 400 --seconds 60 --seed $(SEED) --jobs $(JOBS) --compile-every 8
	$(RUN) -m tests.graph.onnx_suite --jobs $(JOBS)
	! $(RUN) -c "import expecttest" 2>/dev/null || $(RUN) -m tests.graph.torch_ops --jobs $(JOBS)
	$(RUN) -m tests.fuzz graph --count 2000 --seconds 1200 --seed $(SEED) --jobs $(JOBS)
	$(RUN) -m tests.matrix --jobs $(JOBS)
	$(RUN) -m tests.attack --tries $(TRIES) --seed $(SEED) --jobs $(JOBS)

# Compilers that link for 64-bit ARM, RISC-V and WebAssembly with C's library, and an emulator for
# the former two. WebAssembly runs in Node.js.
cross-tools:
	$(call apt_install,qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu \
	    libc6-dev-riscv64-cross clang lld wasi-libc libclang-rt-dev-wasm32 nodejs)

# Chromium asks for fonts, and brings none.
browser-tools:
	$(call apt_install,chromium fonts-dejavu-core)

# VS Code in a browser, and the widget manager of its Jupyter extension. Its native modules, for
# terminals and logs among others, are left out: they would be compiled.
VSCODE := build/vscode
NPM_INSTALL := npm install --no-audit --no-fund --loglevel=error
vscode-tools:
	rm -rf $(VSCODE) && mkdir -p $(VSCODE)/tools && echo '{"private": true}' > $(VSCODE)/package.json
	cd $(VSCODE) && $(NPM_INSTALL) --ignore-scripts code-server@4.139.1
	cd $(VSCODE)/node_modules/code-server/lib/vscode && $(NPM_INSTALL) --omit=dev --ignore-scripts
	cd $(VSCODE) && $(NPM_INSTALL) node@24.21.0
	cd $(VSCODE)/tools && npm pack --silent \
	    @vscode/jupyter-ipywidgets8@1.0.9 @jupyterlab/services@7.6.6 requirejs@2.3.8
	cd $(VSCODE)/tools && tar -xzOf vscode-*.tgz package/dist/ipywidgets.js > manager.js \
	    && tar -xzOf jupyterlab-*.tgz package/dist/dist/index.js > services.js \
	    && tar -xzOf requirejs-*.tgz package/require.js > require.js && rm *.tgz

oldest: $(VENV)/created
	$(RUN) scripts/oldest.py pyproject.toml > $(VENV)/oldest.txt
	PIP_CONSTRAINT=$(VENV)/oldest.txt $(MAKE) VENV=$(VENV)/oldest test

lint: $(VENV)/stamp-check
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

format: $(VENV)/stamp-check
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

bench: $(VENV)/stamp-bench
	$(RUN) -m benchmarks.kernels

budgets: $(VENV)/stamp-core
	$(RUN) -m benchmarks.budgets

docs: $(VENV)/stamp-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

notebooks: $(VENV)/stamp-check
	$(RUN) -m scripts.notebooks

# What setuptools keeps beside the sources would be built into the next wheel.
runtime-wheel: $(VENV)/stamp-core
	rm -rf packaging/runtime/build
	$(RUN) -m pip wheel --quiet --no-deps -w build/wheels packaging/runtime
	rm -rf packaging/runtime/build packaging/runtime/*.egg-info
	@ls -s --block-size=1000 build/wheels

clean:
	rm -rf $(VENV) build tilewright.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/stamp-core: EXTRAS :=
$(VENV)/stamp-check: EXTRAS := [test,lint]
$(VENV)/stamp-bench: EXTRAS := [bench]
$(VENV)/stamp-docs: EXTRAS := [docs]

$(VENV)/stamp-core $(VENV)/stamp-check $(VENV)/stamp-bench $(VENV)/stamp-docs: pyproject.toml $(VENV)/created
	@echo "installing tilewright$(EXTRAS) into $(VENV)"
	@$(RUN) -m pip install --quiet --editable ".$(EXTRAS)"
	@$(RUN) -m compileall -q $(SOURCES)
	@touch $@

$(VENV)/created:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "$(PYTHON) is not to be found: apt install python3 python3-venv," >&2; \
	    echo "or name another one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) scripts/venv.py $(VENV)
	@mkdir $(VENV)/typing && ln -s ../.. $(VENV)/typing/tilewright
	@touch $@
