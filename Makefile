# Everything sets itself up: a virtual environment, the build, dependencies from PyPI.
#
#   make demo      run operators on model-sized tensors
#   make test      lint, types, all tests, sanitizers
#   make bench     speed, side by side with PyTorch; what a call through the C interfaces costs
#   make bench-layers  hundreds of convolutions of public networks, side by side with PyTorch
#                      (ARGS="--filter resnet --dtype float16 --json layers.json")
#   make bench-train   training steps of whole networks, with backops.torch and without
#   make docs      the documentation, into build/site
#   make figures   all of these benchmarks, into the file of this CPU in docs/figures; tables and picture
#   make figures-avx2  the same with both sides held to AVX2
#   make picture   pictures, and the tables of figures, from the files in docs/figures
#   make arm       the C++ and C tests for AArch64, cross-built, under QEMU (needs Debian's packages)
#   make fuzz      generated cases for as long as you let it (FUZZ_MINUTES=10)
#   make format    format all sources
#
# Any Python from 3.10 to 3.13 will do (PYTHON=python3.12); the tests of PyTorch want 3.11.
#
#   make test-python PYTHON=python3.12   the Python tests without PyTorch, in .venv-python3.12

SHELL := /bin/bash -o pipefail
PYTHON ?= python3
JOBS ?= $(shell nproc)
FUZZ_MINUTES ?= 10
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

SOURCES := CMakeLists.txt pyproject.toml \
  $(shell find cmake cpp src -type f -not -path '*/__pycache__/*' 2>/dev/null)
CPP_FILES := $(shell find cpp examples tests/c -name '*.h' -o -name '*.cpp' -o -name '*.inc' \
  -o -name '*.c')

.PHONY: demo test bench bench-layers bench-train figures figures-avx2 docs picture fuzz format lint types unit sanitize slow clean \
  test-python unit-without-torch arm arm-tools

demo: $(VENV)/installed
	$(BIN)/python -m backops demo

test: lint types docs sanitize unit

bench: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m backops bench all
	@echo
	$(BIN)/python -m tests.call_overhead

# Links and anchors that lead nowhere end the build.
docs: $(VENV)/docs-tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

picture: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m backops._bench.figures write .
	$(BIN)/python docs/pictures/windows.py

bench-layers: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m backops bench layers $(ARGS)
	$(BIN)/python -m backops bench forward $(ARGS)
	$(BIN)/python -m backops bench transposed $(ARGS)

bench-train: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python bench/train.py
	$(BIN)/python bench/jax_step.py

# Half an hour and more. What was measured before an interruption is in build/figures.
MEASURED := build/figures
LAYERS := layers forward transposed
FIGURES := $(MEASURED)/all.json $(LAYERS:%=$(MEASURED)/%.json) $(MEASURED)/train.json

figures: $(VENV)/installed $(VENV)/test-tools
	mkdir -p $(MEASURED)
	$(LIMITS) $(BIN)/python -m backops bench all --json $(MEASURED)/all.json $(ARGS)
	for layers in $(LAYERS); do \
	  $(LIMITS) $(BIN)/python -m backops bench $$layers --json $(MEASURED)/$$layers.json $(ARGS) || exit 1; \
	done
	$(LIMITS) $(BIN)/python bench/train.py --json $(MEASURED)/train.json $(TRAIN_ARGS)
	$(BIN)/python -m backops._bench.figures add docs/figures $(FIGURES)
	$(MAKE) picture

figures-avx2:
	$(MAKE) figures LIMITS="BACKOPS_ISA=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2"

# ---- set-up ----

$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	touch $@

# CMake comes from PyPI unless the machine has one.
$(VENV)/installed: $(VENV)/pip $(SOURCES)
	$(PIP) install .
	touch $@

# The tools and libraries that only tests need, or only the documentation; the package itself comes
# from the rule above.
$(VENV)/%-tools: $(VENV)/pip pyproject.toml
	$(PIP) install $$($(EXTRA) $*)
	touch $@

$(VENV)/tools-without-torch: $(VENV)/pip pyproject.toml
	$(PIP) install $$($(EXTRA) test | grep -v '^torch')
	touch $@

# The packages of an optional dependency. Python 3.10 has no tomllib, but pip brings the same.
EXTRA := $(BIN)/python -c "import importlib, sys; \
  toml = importlib.import_module('tomllib' if sys.version_info >= (3, 11) else 'pip._vendor.tomli'); \
  project = toml.load(open('pyproject.toml', 'rb'))['project']; \
  print(*project['optional-dependencies'][sys.argv[1]], sep='\n')"

# ---- the parts of make test ----

lint: $(VENV)/test-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src cpp tests examples bench

# With the package, for the types of what it depends on.
types: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/mypy

# Nothing here logs, and the frameworks have forty loggers that pytest would see to three times a test.
unit: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -p no:logging

# The core, the C libraries and the extension with address and undefined-behaviour sanitizers, under
# the C++ tests, the C programs and the same Python cases; threads under the thread sanitizer.
sanitize: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m tests.run_sanitized --jobs $(JOBS)

# ---- beyond make test ----

fuzz: $(VENV)/installed $(VENV)/test-tools
	end=$$(( $$(date +%s) + 60 * $(FUZZ_MINUTES) )); \
	while [ $$(date +%s) -lt $$end ]; do \
	  BACKOPS_FUZZ=1 $(BIN)/python -m pytest -q -n $(JOBS) -k generated || exit 1; \
	done

# For the versions of Python that have no PyTorch to test with: what does not need it.
test-python:
	$(MAKE) unit-without-torch VENV=.venv-$(notdir $(PYTHON))

unit-without-torch: $(VENV)/installed $(VENV)/tools-without-torch
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -p no:logging --without-torch

# What is missing is installed if Debian has it and this is root; else it says what that is.
arm-tools:
	$(PYTHON) -m tests.run_arm --tools-only

# With the package, whose bits pooling must have there, too.
arm: arm-tools $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m tests.run_arm --jobs $(JOBS)

slow: $(VENV)/installed $(VENV)/test-tools
	$(BIN)/python -m pytest -q -m slow

format: $(VENV)/test-tools
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf $(VENV) build
