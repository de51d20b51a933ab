#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For developers whose GPU is on another machine: compiles libslimgemm.so with its GPU kernels where
# nvcc is (minutes, no GPU needed), into build/prebuilt: 12 MB that link to nothing but libc and
# libstdc++. On the machine with the GPU bindings/python/gpu_check.sh compiles the Python module
# against it, in seconds.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

prefix=build/prebuilt
cmake -S . -B build/shared-cuda -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
  -DSLIMGEMM_CUDA=ON -DSLIMGEMM_BUILD_TESTS=OFF -DSLIMGEMM_BUILD_TOOLS=OFF \
  -DSLIMGEMM_BUILD_EXAMPLES=OFF -DSLIMGEMM_BUILD_BENCHMARKS=OFF \
  -DCMAKE_INSTALL_RPATH="\$ORIGIN" -DCMAKE_INSTALL_LIBDIR=lib "$@"
cmake --build build/shared-cuda
rm -rf $prefix
cmake --install build/shared-cuda --prefix $prefix --strip
# Highway is a library of the distribution: it goes along.
highway=$(ldd $prefix/lib/libslimgemm.so | sed -n 's/.*libhwy\.so\.1 => \([^ ]*\).*/\1/p')
[ -z "$highway" ] || cp -L "$highway" $prefix/lib/libhwy.so.1
du -sh $prefix | sed 's/\t.*//; s|^|build/prebuilt: |'
