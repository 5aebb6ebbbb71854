# Two commands do all the set-up on a fresh Debian or Ubuntu: `make demo` and `make test`.
# Both may be run again at any time; what is there already is left alone.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := .demo

.PHONY: demo test check bench clean system setup

setup: system $(READY)

# Podman and what builds images, from the distribution's packages (sudo where one is not root).
system:
	@.ci/system-packages

$(READY): pyproject.toml constraints.txt
	@echo "== Python environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,humaneval,learn,hf,openai,serve,joblib]'
	@touch $@

demo: setup
	@.ci/demo $(BIN)/guerdon $(DEMO)

test: setup
	@$(BIN)/guerdon doctor
	@$(BIN)/python -m pytest tests

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_import_rules.py tests/test_packaging.py

bench: setup
	@for one in benchmarks/*.py; do echo "== $$one"; $(BIN)/python $$one || exit 1; done

clean:
	-@test -x $(BIN)/guerdon && $(BIN)/guerdon sandbox gc && $(BIN)/guerdon service stop
	rm -rf $(VENV) $(DEMO) build dist *.egg-info runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
