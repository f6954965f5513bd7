# Two commands are all a newcomer needs:
#   make demo   sets everything up in .venv, runs the main job on generated data, prints AP and where to look
#   make test   sets everything up in .venv, runs the tests but those marked slow
# `make docs` builds the documents as a site, build/site/index.html.

VENV := .venv
DEMO_DIR ?= demo_out
# What `make test` runs: all tests but the slow ones, or files and folders of them.
TESTS ?=
# The first interpreter that TensorFlow 2.21 has wheels for; PYTHON=... overrides the search.
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
	2>/dev/null && echo "$$p" && break; done)

.PHONY: demo test lint docs install clean

demo: install
	$(VENV)/bin/tfod demo --output $(DEMO_DIR)

# Processes and programs that tests start find what others have compiled, whatever the environment.
test: install
	env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(strip $(TESTS))

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

docs: install
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo 'The site: build/site/index.html'

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml setup.py $(wildcard object_detection/protos/*.proto)
	@if [ -z "$(PYTHON)" ]; then \
		echo 'Python 3.11, 3.12 or 3.13 (with venv) is needed and was not found; name one: make PYTHON=/path/to/python3.12' >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info $(DEMO_DIR)
