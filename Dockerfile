# Performer with its tree, for training and for `make demo`.
#
#   docker build -t performer .
#   docker run --rm performer make demo
#   docker run --rm -v "$PWD/runs:/performer/runs" performer performer train configs/protein/softmax.toml --out runs/first
#
# CUDA: another base with nvcc, on which apt knows the packages of scripts/packages.txt, and --gpus all to run:
#
#   docker build -t performer:cuda --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
#   docker run --rm --gpus all performer:cuda performer bench model configs/bench/regular.toml
#
# pip takes torch from its default index; where that is not the build of torch for the base (CPU or CUDA), name
# another by --build-arg PIP_INDEX_URL=... or PIP_EXTRA_INDEX_URL=...
ARG BASE=debian:12

FROM ${BASE} AS packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1
WORKDIR /performer
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
COPY requirements.txt ./
COPY scripts/setup.sh scripts/packages.txt scripts/
RUN scripts/setup.sh && rm -rf /var/lib/apt/lists/*

FROM packages
COPY . .
RUN make configure && cmake --build --preset release --target performer_program && rm -rf /root/.cache
ENV PATH=/performer/build:$PATH
CMD ["performer", "--help"]
