# Every target alone does all that it needs, from a fresh machine on; a second run is quick.
PREFIX ?= /usr/local
BUILD := build
PYTHON := .venv/bin/python

.PHONY: build configure demo attention test test-all attack setup install format lint clean help
.DEFAULT_GOAL := build

configure: setup
	@test $(BUILD)/build.ninja -nt CMakePresets.json || cmake --preset release

build: configure ## build program, library, tests and Python package (the default)
	@cmake --build --preset release
	@echo "make: built $(BUILD)/performer and $(BUILD)/libperformer.so; the package imports in .venv"

demo: configure ## train three small protein models and show what they learned
	@cmake --build --preset release --target performer_program
	@$(PYTHON) scripts/demo.py

attention: configure ## FAVOR+ against exact attention: time, memory, error, a picture
	@cmake --build --preset release --target performer
	@$(PYTHON) experiments/favor_at_work.py

test: ## set up, build and run every check and test, as CI does
	@scripts/test.sh

test-all: ## the same with every CUDA architecture, and every instruction set under the sanitizers
	@scripts/test.sh all

attack: build ## the long form of the attacks: kills, damage, hostile files, random calls, fuzzing (hours)
	@scripts/attack.sh

setup: ## install what is missing: system packages, .venv
	@scripts/setup.sh

install: build ## install program, library, headers and CMake package into PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix "$(PREFIX)"
	@echo "make: installed into $(PREFIX)"

format: setup ## rewrite the sources in the project's format
	@scripts/lint.sh format

lint: build ## check formats, include directions, types and clang-tidy
	@scripts/lint.sh check
	@$(PYTHON) scripts/tidy.py $(BUILD)
	@echo "make: lint found nothing"

clean: ## remove what was built; .venv stays
	@rm -rf build build-*
	@echo "make: removed the build folders"

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18
