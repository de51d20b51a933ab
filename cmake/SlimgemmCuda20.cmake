# SPDX-License-Identifier: Apache-2.0
# CMake before 3.26 does not know how nvcc is told to compile C++20, and then refuses a CUDA file of
# any target that links one with the feature cxx_std_20. nvcc has known the option since CUDA 12.0.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
