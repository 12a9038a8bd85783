# Two commands do everything on a fresh machine: `make demo` and `make test`.
# `make bench` measures the scan against a bare forward pass.
PYTHON ?= python3
VENV := .venv
# Modules are compiled once, not again in each of the hundred processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# One more than there are cores, five at most: tests of browsers and workers often wait.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 1 : 5)))

.PHONY: demo test tests lint browser bench clean

demo: $(INSTALLED)
	$(BIN)/ffmem study demo

# The checks of types, which need one core, run beside the tests.
test: $(INSTALLED) browser
	@$(MAKE) --no-print-directory --jobs=2 lint tests

tests: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Pages are tested in a real browser. Where it cannot be installed those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium for the tests of pages" && \
		{ apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }; } >/dev/null 2>&1; \
	} || echo "no Chromium: the tests of pages in a browser will be skipped"

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.scan demo demo --sentences 1000 --warmup 3000 --rounds 5

# Built again only when what it is built from has changed.
$(INSTALLED): pyproject.toml constraints.txt
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build *.egg-info
