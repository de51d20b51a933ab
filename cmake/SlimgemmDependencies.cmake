# SPDX-License-Identifier: Apache-2.0
# Finds what the project uses. Required: threads, and for the command fmt and CLI11. Everything
# else is optional: what is missing switches its part off, with one line at the end of the
# configuration that says so.

# What the configuration is told to do without (SLIMGEMM_WITHOUT), by the names used here.
set(optional_names cuda highway xxhash json onednn openblas cublas gtest benchmark)
foreach(name IN LISTS SLIMGEMM_WITHOUT)
  if(NOT name IN_LIST optional_names)
    message(FATAL_ERROR "SLIMGEMM_WITHOUT: \"${name}\" is not one of ${optional_names}")
  endif()
endforeach()

# slimgemm_optional(<part> <have-variable> <name> <found> <text if on> <text if off>): sets the
# variable and records the part.
function(slimgemm_optional part variable name found text_on text_off)
  if(name IN_LIST SLIMGEMM_WITHOUT)
    set(found OFF)
    set(text_off "switched off by SLIMGEMM_WITHOUT")
  endif()
  if(found)
    set(${variable} ON PARENT_SCOPE)
    slimgemm_part("${part}" ON "${text_on}")
  else()
    set(${variable} OFF PARENT_SCOPE)
    slimgemm_part("${part}" OFF "${text_off}")
  endif()
endfunction()

# slimgemm_imported(<target> <include dir> [<library>]): an imported target for what find_path and
# find_library found.
function(slimgemm_imported target include)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} SYSTEM INTERFACE ${include})
  target_link_libraries(${target} INTERFACE ${ARGN})
endfunction()

find_package(Threads REQUIRED)

include(SlimgemmCuda)

# Highway: SIMD kernels of the CPU backend.
find_package(hwy CONFIG QUIET)
set(SLIMGEMM_HWY_TARGET "")
if(TARGET hwy::hwy)
  set(SLIMGEMM_HWY_TARGET hwy::hwy)
else()
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy)
  endif()
  if(TARGET PkgConfig::HWY)
    set(SLIMGEMM_HWY_TARGET PkgConfig::HWY)
  endif()
endif()
slimgemm_optional("CPU SIMD kernels" SLIMGEMM_HAVE_HIGHWAY highway "${SLIMGEMM_HWY_TARGET}"
  "Highway" "Highway (libhwy-dev) not found; the CPU backend runs its scalar kernel")
if(NOT SLIMGEMM_HAVE_HIGHWAY)
  set(SLIMGEMM_HWY_TARGET "")
endif()

# xxHash: checksums of packed data. Used as a header only.
find_path(SLIMGEMM_XXHASH_INCLUDE xxhash.h)
slimgemm_optional("checksums" SLIMGEMM_HAVE_XXHASH xxhash "${SLIMGEMM_XXHASH_INCLUDE}"
  "XXH3" "xxhash.h (libxxhash-dev) not found; packed data is written and read unchecked")

set(SLIMGEMM_HAVE_JSON OFF)
set(SLIMGEMM_HAVE_ONEDNN OFF)
set(SLIMGEMM_HAVE_CBLAS OFF)
set(SLIMGEMM_HAVE_CUBLAS OFF)
if(SLIMGEMM_BUILD_TOOLS)
  find_package(fmt REQUIRED)
  find_package(CLI11 REQUIRED)

  find_package(nlohmann_json QUIET)
  slimgemm_optional("JSON and HTML reports" SLIMGEMM_HAVE_JSON json "${nlohmann_json_FOUND}"
    "nlohmann-json ${nlohmann_json_VERSION}" "nlohmann-json (nlohmann-json3-dev) not found")

  find_path(SLIMGEMM_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(SLIMGEMM_DNNL_LIBRARY dnnl)
  set(found OFF)
  if(SLIMGEMM_DNNL_INCLUDE AND SLIMGEMM_DNNL_LIBRARY)
    set(found ON)
  endif()
  slimgemm_optional("oneDNN baseline" SLIMGEMM_HAVE_ONEDNN onednn ${found}
    "${SLIMGEMM_DNNL_LIBRARY}" "oneDNN (libdnnl-dev) not found")
  if(SLIMGEMM_HAVE_ONEDNN)
    slimgemm_imported(slimgemm::onednn ${SLIMGEMM_DNNL_INCLUDE} ${SLIMGEMM_DNNL_LIBRARY})
  endif()

  find_path(SLIMGEMM_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread
            x86_64-linux-gnu x86_64-linux-gnu/openblas-pthread aarch64-linux-gnu/openblas-pthread)
  find_library(SLIMGEMM_CBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread)
  set(found OFF)
  if(SLIMGEMM_CBLAS_INCLUDE AND SLIMGEMM_CBLAS_LIBRARY)
    set(found ON)
  endif()
  slimgemm_optional("fast FP64 references" SLIMGEMM_HAVE_CBLAS openblas ${found}
    "${SLIMGEMM_CBLAS_LIBRARY}" "OpenBLAS (libopenblas-dev) not found; references use a plain loop")
  if(SLIMGEMM_HAVE_CBLAS)
    slimgemm_imported(slimgemm::cblas ${SLIMGEMM_CBLAS_INCLUDE} ${SLIMGEMM_CBLAS_LIBRARY})
  endif()

  # cuBLAS is loaded at run time, from the folder SLIMGEMM_CUBLAS_DIR or where the system or the
  # toolkit has it: the build needs its headers only.
  if(SLIMGEMM_HAVE_CUDA)
    find_path(SLIMGEMM_CUBLAS_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    slimgemm_optional("cuBLAS baselines" SLIMGEMM_HAVE_CUBLAS cublas "${SLIMGEMM_CUBLAS_INCLUDE}"
      "cuBLAS, loaded at run time" "cublasLt.h not found in the CUDA toolkit")
  endif()
endif()

set(SLIMGEMM_HAVE_GTEST OFF)
if(SLIMGEMM_BUILD_TESTS AND NOT SLIMGEMM_BUILD_TOOLS)
  slimgemm_part("tests" OFF "they test the judge too and need SLIMGEMM_BUILD_TOOLS=ON")
elseif(SLIMGEMM_BUILD_TESTS)
  find_package(GTest QUIET)
  slimgemm_optional("tests" SLIMGEMM_HAVE_GTEST gtest "${GTest_FOUND}"
    "GoogleTest ${GTest_VERSION}" "GoogleTest (libgtest-dev) not found")
endif()

set(SLIMGEMM_HAVE_BENCHMARK OFF)
if(SLIMGEMM_BUILD_BENCHMARKS)
  find_package(benchmark QUIET)
  slimgemm_optional("benchmarks" SLIMGEMM_HAVE_BENCHMARK benchmark "${benchmark_FOUND}"
    "Google Benchmark ${benchmark_VERSION}" "Google Benchmark (libbenchmark-dev) not found")
endif()
