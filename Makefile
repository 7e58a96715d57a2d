# What a person types. Every target sets up what it needs; nothing has to be installed by hand but Python, git and make.

PYTHON ?= python3
CONSTRAINTS := tests/constraints.txt
CORE := .venv/.core
DEV := .venv/.dev
WHEELS := .venv/.wheels
MINIMUMS := .venv/minimums
SITE := .venv/site

.DEFAULT_GOAL := help
.PHONY: help install demo test check deep faults peers cluster minimums coverage bench docs dist clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(CORE) ## Make .venv with packer in it (no torch)

demo: $(CORE) ## Build, inspect and verify a cache from the starter folder
	@rm -rf demo
	@for step in "init demo" "build -c demo/recipe.yaml -o demo/cache" "inspect demo/cache" "verify demo/cache"; do \
	  printf '\n$$ packer %s\n' "$$step"; .venv/bin/packer $$step || exit $$?; done
	@printf '\nDone: demo/data became demo/cache, and every byte of it was checked.\nNext:\n'
	@printf '  %s\n' '. .venv/bin/activate                      puts packer on your path' \
	  'packer stats demo/cache                   lengths, fill, what was rejected and why' \
	  'packer build YOUR.jsonl --tokenizer YOUR_MODEL_FOLDER -o cache' \
	  'docs/tutorial.md                          the same, step by step, to a training loop'

# Three workers for two cores: a fifth of the time a worker waits for processes that tests start.
test: $(DEV) ## All tests (unit, properties, command line, conformance, faults; real data where it lies)
	.venv/bin/python -m pytest -q -m "not slow" -n 3 --dist worksteal

check: $(DEV) ## Lint, formatting, types, generated docs
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	@mkdir -p .venv/typing && ln -sfn ../../cli .venv/typing/packer_cli  # mypy cannot see an editable install
	MYPYPATH=.venv/typing .venv/bin/mypy
	.venv/bin/python docs/site/reference.py --check

deep: $(DEV) ## The same properties, searched much longer, and the slow tests
	HYPOTHESIS_PROFILE=deep .venv/bin/python -m pytest -q -n 2 --dist worksteal

faults: $(DEV) ## Every fault of docs/explanation/guarantees.md as often as it says, with a table; about half an hour
	PACKER_FAULTS=full .venv/bin/python -m pytest -q -n 2 tests/faults

peers: $(DEV) ## Other trainers over what packer gives them: installs axolotl, LLaMA-Factory, torchtitan, …
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python --requirement tests/requirements-peers.txt
	.venv/bin/python -m pytest -q -rs tests/peers

cluster: $(DEV) ## Builds on a real Ray cluster and into a real object store of one machine, with all that dies and races
	.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint $(CONSTRAINTS) --requirement tests/requirements-cluster.txt
	@! command -v npm > /dev/null || npm install --silent --no-fund --no-audit --prefix .venv/azurite azurite@3.35.0
	PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -q tests/cluster

# Not the oldest torch: a version of it alone would bring gigabytes of CUDA, so tests take the pinned one. transformers is the
# oldest that PackedTrainer takes, as the oldest tokenizers allow no newer one. What needs `datasets`, Lightning or TRL is skipped.
# So is what compares with transformers 5 (ids, marks, models), or makes files by what newer Arrow can.
minimums: .venv/bin/python ## The tests under the oldest versions that pyproject.toml declares; once a release
	.venv/bin/python -m venv --clear $(MINIMUMS)
	.venv/bin/python tests/minimums.py > $(MINIMUMS)/constraints.txt
	$(MINIMUMS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
	  --constraint $(MINIMUMS)/constraints.txt torch
	$(MINIMUMS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
	  --constraint $(MINIMUMS)/constraints.txt --editable ".[fast,hub]" hypothesis pytest pytest-xdist accelerate transformers
	$(MINIMUMS)/bin/python -m pytest -q -m "not slow" -n 2 --dist worksteal --ignore tests/peers \
	  --deselect tests/test_docs.py::test_generated_pages_are_what_make_docs_writes \
	  --deselect tests/load/test_contract.py::test_what_a_hugging_face_model_gets_keeps_it_too \
	  --deselect tests/pipeline/test_forms.py::test_a_request_and_its_answer_are_read_as_what_they_say \
	  --deselect tests/store/test_damage.py::test_record_batches_that_do_not_follow_one_another_are_refused \
	  $(addprefix --ignore tests/,conformance load/test_poison.py load/test_adapters.py faults/test_forged_values.py)

coverage: $(DEV) ## Branches of store, resume and verify that no test takes: none, or it fails; a few minutes
	@rm -f .coverage .coverage.*
	.venv/bin/python -m coverage run -m pytest -q -m "not slow" -n 2 --dist worksteal \
	  tests/store tests/pipeline tests/audit tests/cli tests/faults
	@.venv/bin/python -m coverage combine -q
	.venv/bin/python -m coverage report

bench: $(DEV) ## Figures, as ratios within one run; PEERS=1 installs datatrove, and has it in them
	$(if $(PEERS),.venv/bin/python tests/bench/preparing/install.py)
	.venv/bin/python tests/bench/run.py $(if $(PEERS),--peers)

docs: $(CORE) $(SITE)/.ready ## Generate the reference pages, and build the site in site/ with every link checked
	.venv/bin/python docs/site/reference.py
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --config-file docs/site/mkdocs.yml

dist: $(DEV) ## Wheel and source archive in dist/
	.venv/bin/python -m build

clean: ## Remove what the targets made
	rm -rf .venv build dist demo site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "packer needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

# What is imported is compiled then: pip would compile all, which takes longer than to install it, for what no test imports.
$(CORE): .venv/bin/python pyproject.toml
	.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint $(CONSTRAINTS) --editable ".[hub]"
	@touch $@

# pip asks a server for one package after the other, and waits: here for six at once, and beside $(CORE). Only for a new .venv; what
# cannot be had like this (another system or Python) is left to pip's own way below.
$(WHEELS): | .venv/bin/python
	@test -e $(DEV) || grep -v '^#' $(CONSTRAINTS) | xargs -P 6 -n 16 .venv/bin/python -m pip download --quiet --no-deps \
	  --only-binary :all: --disable-pip-version-check --dest .venv/wheels 2> /dev/null || true
	@touch $@

# torch is pinned: a range would bring gigabytes of CUDA to a machine without a GPU.
$(DEV): $(CORE) $(CONSTRAINTS) tests/requirements.txt | $(WHEELS)
	@test ! -d .venv/wheels || .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
	  .venv/wheels/*.whl || true
	@rm -rf .venv/wheels
	.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint $(CONSTRAINTS) --requirement tests/requirements.txt
	@touch $@

# An environment of its own: what builds the site asks for other versions than the tests run with.
$(SITE)/.ready: .venv/bin/python docs/site/requirements.txt
	.venv/bin/python -m venv --clear $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/site/requirements.txt
	@touch $@
