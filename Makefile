# Each target sets up what it needs, in virtual environments of this folder. Three are enough to begin with:
#   make run     a page with the five gradient operators: every block's result, and a picture of it all
#   make studio  draw pages in the browser; make studio PAGE=examples/pages/tour.page.json opens one
#   make test    all tests; make quick takes two minutes

PYTHON ?= python3
# What the tests compare with and pass arrays of; `make test FRAMEWORKS=` does without, and says what it skips.
FRAMEWORKS ?= torch==2.13.0 fbgemm-gpu-cpu==1.8.0 jax optax flax equinox scipy matplotlib
TENSORFLOW ?= tensorflow-cpu==2.21.0
# Whom `make report` measures against, what draws its pictures, and what PyTorch's own cases and the attacks need.
PEERS ?= $(TENSORFLOW) torch==2.13.0 fbgemm-gpu-cpu==1.8.0 scipy matplotlib lmdb rocksdict pandas polars expecttest pytest hypothesis

# Two test processes, each with whole files, in the order of the tree: the longest ones come early there.
# `make test PARALLEL=` runs all tests in one.
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder

SOURCES := pyproject.toml $(shell find src -name '*.py' -o -name '*.pyi')

STUDIO := studio/pyproject.toml studio/hatch_build.py studio/web/package-lock.json studio/web/build.mjs \
  $(shell find studio/src studio/web/src studio/web/static examples/pages -type f -not -name '*.pyc')

.PHONY: run studio test quick test-oracle soak report bench lint docs site clean

run: .venv/ready
	.venv/bin/rowgrad run examples/pages/tour.page.json --svg tour.svg --force

studio: .venv-studio/ready
	.venv-studio/bin/rowgrad studio $(PAGE)

# In two parts: each process keeps the kernels and frameworks that its tests have loaded, many gigabytes in the end.
test: .venv-test/ready
	.venv-test/bin/python -m pytest $(PARALLEL) --ignore tests/oracle --ignore tests/torch
	.venv-test/bin/python -m pytest $(PARALLEL) tests/torch

# The inner loop: the catalogue, every operator beside its plain loops with a few examples, errors, pages, documents.
quick: .venv-test/ready
	.venv-test/bin/python -m pytest $(PARALLEL) --hypothesis-profile quick -m "not slow" \
	  tests/test_*.py tests/ops tests/blocks tests/cli tests/docs tests/optim tests/runtime

test-oracle: .venv-oracle/ready
	.venv-oracle/bin/python -m pytest $(PARALLEL) tests/oracle tests/keras
	.venv-oracle/bin/python tests/record_golden.py --check

soak: .venv-test/ready
	cd tests && ../.venv-test/bin/python -m adversary.soak

# Measures what the documents state, and writes docs/report.md: an hour and a half, on a quiet machine.
# `make report PARTS="values scale"` runs some parts and keeps the figures of the others.
report: .venv-bench/ready
	cd benchmarks && ../.venv-bench/bin/python -m figures $(PARTS)

bench: .venv-bench/ready
	cd benchmarks && ../.venv-bench/bin/python -m figures bench

lint: .venv-lint/ready studio/web/node_modules/.package-lock.json
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy
	.venv-lint/bin/lint-imports
	.venv-lint/bin/repo-review --show err .
	npm --prefix studio/web run --silent check

docs: .venv-lint/ready
	.venv-lint/bin/python docs/generate.py

# The documentation as a site, in docs/_build/html; a warning is an error.
site: .venv-test/ready
	.venv-test/bin/python -m sphinx -b html -q --fail-on-warning --keep-going docs docs/_build/html

clean:
	rm -rf docs/_build docs/_generated
	rm -rf studio/web/dist studio/web/node_modules studio/web/.tests
	rm -rf .venv .venv-* build dist tour.svg .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `make run` and `make studio` use the packages as users get them; the others see the sources as they are.
.venv/ready: $(SOURCES)
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --upgrade --force-reinstall --no-deps .
	.venv/bin/python -m pip install --quiet .
	touch $@

.venv-studio/ready: $(SOURCES) $(STUDIO)
	$(PYTHON) -m venv .venv-studio
	.venv-studio/bin/python -m pip install --quiet --upgrade --force-reinstall --no-deps . ./studio
	.venv-studio/bin/python -m pip install --quiet '.[png,graphdef]' ./studio
	touch $@

.venv-test/ready: pyproject.toml studio/pyproject.toml Makefile
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python -m pip install --quiet -e '.[test,site]' -e './studio[test]' $(FRAMEWORKS)
	touch $@

.venv-oracle/ready: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-oracle
	.venv-oracle/bin/python -m pip install --quiet -e '.[test]' $(TENSORFLOW)
	touch $@

.venv-bench/ready: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet -e . $(PEERS)
	touch $@

.venv-lint/ready: pyproject.toml studio/pyproject.toml Makefile
	$(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip install --quiet -e '.[lint]' -e ./studio
	touch $@

studio/web/node_modules/.package-lock.json: studio/web/package-lock.json
	npm --prefix studio/web ci --no-audit --no-fund
	touch $@
