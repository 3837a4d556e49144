# `make run`, `make demo`, `make paper`, `make robust`, `make real`, `make test`, `make docs`, `make benchmarks`: each makes .venv first and needs only Python and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run demo paper robust real test test-page test-integrations soak lint docs benchmarks clean

run: .venv/run.stamp
	$(BIN)/dasp bench quick --results out/quick

demo: .venv/demo.stamp
	$(BIN)/dasp demo

paper: .venv/run.stamp
	$(BIN)/dasp bench paper --results results/paper

robust: .venv/run.stamp
	$(BIN)/dasp bench robust --results results/robust

# Recordings: make real DASP_DATA=DIR, a directory with grid and dsa in it (docs/data.md). It resumes after an interruption.
real: .venv/real.stamp
	@test -n "$(DASP_DATA)" || { echo "make real DASP_DATA=DIR: a directory with grid and dsa in it; 'dasp data fetch' says where to get them"; exit 2; }
	$(BIN)/python tools/real_data.py $(DASP_DATA) out/real
	$(BIN)/dasp bench real/grid --root out/real/grid --results results/real
	test ! -d $(DASP_DATA)/noise/set_a || $(BIN)/dasp bench real/grid/recorded --root out/real/grid --noise-dir $(DASP_DATA)/noise/set_a --results results/real
	test ! -d $(DASP_DATA)/noise/set_b || $(BIN)/dasp bench real/grid/other_noise --root out/real/grid --noise-dir $(DASP_DATA)/noise/set_b --results results/real
	$(BIN)/dasp bench real/dsa --root out/real/dsa --results results/real

test: .venv/dev.stamp
	$(BIN)/pytest -n auto --dist loadfile
	$(MAKE) --no-print-directory lint

test-page: .venv/browser.stamp
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium; } \
	  || { echo "the tests of the page need chromium: as root, apt-get install chromium"; exit 2; }
	$(BIN)/pytest tests/page/browser

# Trackers, brokers, Ray Serve and exports: what others run beside it, each for real.
test-integrations: .venv/integrations.stamp
	@command -v mosquitto >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq mosquitto; } \
	  || echo "without mosquitto the test of MQTT is skipped: as root, apt-get install mosquitto"
	$(BIN)/pytest tests/integrations

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/run.stamp: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dasp needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes the first time: torch is large)"
	$(PIP) -e '.[bench]'
	@touch $@

.venv/dev.stamp: .venv/run.stamp
	@echo "installing what the tests need"
	$(PIP) -e '.[dev]'
	@touch $@

# The documentation as a site; nothing is fetched, and a warning is an error.
docs: .venv/docs.stamp
	$(BIN)/python -m sphinx --quiet -W --keep-going -n -d out/doctrees docs out/docs
	@echo "open out/docs/index.html"

.venv/docs.stamp: .venv/run.stamp
	@echo "installing what the documentation needs"
	$(PIP) -e '.[docs]'
	@touch $@

.venv/real.stamp: .venv/run.stamp
	$(PIP) -e '.[media]'
	@touch $@

.venv/demo.stamp: .venv/run.stamp
	$(PIP) -e '.[demo]'
	@touch $@

.venv/integrations.stamp: .venv/dev.stamp
	@echo "installing what the tests of integrations need"
	$(PIP) -e '.[integrations]'
	@touch $@

.venv/browser.stamp: .venv/dev.stamp
	$(PIP) -e '.[browser]'
	@touch $@

# All benchmarks, an hour and a half: ratios against their goals, kept in benchmarks/results.
benchmarks: .venv/benchmarks.stamp
	$(BIN)/python benchmarks/run.py

.venv/benchmarks.stamp: .venv/dev.stamp
	$(PIP) -e '.[benchmarks]'
	@touch $@

clean:
	rm -rf .venv

# 20,000 batches among faults of every kind, and 10,000 odd files of each kind: tests/faults.
soak: .venv/dev.stamp
	$(BIN)/python tests/faults/soak.py
	DASP_FUZZ=10000 $(BIN)/pytest -n auto tests/faults/test_fuzz.py
