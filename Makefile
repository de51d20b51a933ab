# SPDX-License-Identifier: Apache-2.0
# The two commands of the README, and what developers use every day. `make judge ARGS="--repeats 5"`
# passes options on to `slimgemm judge`.
.DEFAULT_GOAL := help
.PHONY: help judge test setup build check format lint fuzz clean

help:  ## This list
	@sed -nE 's/^([a-z]+):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

judge:  ## Build; check and time 39 shapes; writes build/judge.json and .html
	@scripts/judge.sh $(ARGS)

test:  ## The same, then every check and every test
	@scripts/test.sh

setup:  ## Install what is missing from the distribution
	@scripts/setup.sh test

build:  ## Configure and build the release preset
	@scripts/build.sh release

check: build  ## Build and run the tests, without the slower checks of `make test`
	@ctest --preset release -j $$(nproc)

format:  ## Format the sources
	@scripts/format.sh

lint: build  ## clang-tidy
	@scripts/lint.sh $(ARGS)

fuzz:  ## Build and run the fuzz targets for a short while
	@scripts/fuzz.sh

clean:  ## Remove everything that was built
	rm -rf build
