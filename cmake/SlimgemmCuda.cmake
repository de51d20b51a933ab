# SPDX-License-Identifier: Apache-2.0
# The GPU backend: enables the CUDA language where nvcc is found and sets SLIMGEMM_HAVE_CUDA. No GPU
# is needed to build.

set(SLIMGEMM_CUDA_VERSION_MIN 12.4)
set(SLIMGEMM_HAVE_CUDA OFF)

if(SLIMGEMM_CUDA STREQUAL "OFF" OR "cuda" IN_LIST SLIMGEMM_WITHOUT)
  slimgemm_part("GPU backend" OFF "switched off by SLIMGEMM_CUDA or SLIMGEMM_WITHOUT")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(SLIMGEMM_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  if(SLIMGEMM_NVCC)
    set(CMAKE_CUDA_COMPILER ${SLIMGEMM_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)  # wgmma and setmaxnreg need the "a"
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SLIMGEMM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLIMGEMM_CUDA=ON, but no working nvcc was found. Put nvcc on PATH, set "
                        "CMAKE_CUDA_COMPILER, or configure with -DSLIMGEMM_CUDA=OFF.")
  endif()
  slimgemm_part("GPU backend" OFF "no working CUDA compiler (nvcc) found")
  return()
endif()

enable_language(CUDA)
# Folders that the host compiler searches anyway must not be given to nvcc as -isystem.
list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
include(${CMAKE_CURRENT_LIST_DIR}/SlimgemmCuda20.cmake)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS SLIMGEMM_CUDA_VERSION_MIN)
  set(too_old "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is older than ${SLIMGEMM_CUDA_VERSION_MIN}")
  if(SLIMGEMM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "${too_old}. Install a newer toolkit, or configure with "
                        "-DSLIMGEMM_CUDA=OFF.")
  endif()
  slimgemm_part("GPU backend" OFF "${too_old}")
  return()
endif()
set(SLIMGEMM_HAVE_CUDA ON)
slimgemm_part("GPU backend" ON
  "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
