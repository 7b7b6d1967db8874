# make demo    a real hang, diagnosed from outside          make test    the whole suite, live runs included
# make check   lint, format, types, walls                   make docs, make pictures   write the generated pages anew
# make bench   the figures of docs/performance.md           make unit    the fast part of the suite
# make hangbench   every case live, scored (ARGS=--write: docs/accuracy.md)   make corpus   record them   make soak   1,000 looks
# make observers   many observers side by side at one healthy run, 200 looks
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
FRAMEWORKS := .venv/.frameworks

.PHONY: demo test unit live check format docs pictures bench hangbench soak observers corpus clean

demo: $(READY)
	@# Exit code 1 is the contract's "an error was found": that is what a demo of a hang is for.
	@$(BIN)/hangdoc demo; code=$$?; [ $$code -eq 1 ] || exit $$code

test: $(FRAMEWORKS)
	$(BIN)/pytest

unit: $(READY)
	$(BIN)/pytest tests/unit tests/corpus tests/tui

live: $(READY)
	$(BIN)/pytest tests/live

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python -m docs.generate

pictures: $(READY)
	$(BIN)/python -m docs.pictures

bench: $(READY)
	$(BIN)/python -m bench

# What only the frameworks' own cases need (docs/dependencies.md).
$(FRAMEWORKS): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[tui,watch,trainer,dev,frameworks]'
	touch $@

hangbench: $(FRAMEWORKS)
	$(BIN)/python -m hangbench $(ARGS)

soak: $(FRAMEWORKS)
	$(BIN)/python -m hangbench --soak 1000 $(ARGS)

observers: $(READY)
	$(BIN)/python -m bench.observers 200

corpus: $(FRAMEWORKS)
	$(BIN)/python -m hangbench --record

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "hangdoc needs Python 3.11 or newer: make PYTHON=python3.11")'
	@# Debian's python3 comes without venv's pip; root may mend that.
	$(PYTHON) -m venv .venv || { rm -rf .venv; [ "$$(id -u)" = 0 ] && apt-get install -y python3-venv && $(PYTHON) -m venv .venv; } \
		|| { echo "venv is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[tui,watch,trainer,dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
