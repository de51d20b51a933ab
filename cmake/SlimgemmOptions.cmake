# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target: slimgemm_target(<target>) applies them.
#
# What was found on this machine reaches the code as definitions of every target, always 0 or 1,
# so that a source says `#if SLIMGEMM_HAVE_HIGHWAY` (never #ifdef; -Wundef names a misspelling):
#
#   SLIMGEMM_HAVE_CUDA      the GPU backend is built (CUDA runtime, .cu files)
#   SLIMGEMM_HAVE_HIGHWAY   Highway: SIMD kernels of the CPU backend
#   SLIMGEMM_HAVE_XXHASH    xxhash.h: checksums of packed data
#   SLIMGEMM_HAVE_JSON      nlohmann-json: JSON and HTML reports
#   SLIMGEMM_HAVE_ONEDNN    oneDNN: the CPU baseline
#   SLIMGEMM_HAVE_CBLAS     OpenBLAS: fast FP64 references
#   SLIMGEMM_HAVE_CUBLAS    cuBLAS and cuBLASLt: the GPU baselines
#
# CMake variables of the same names say the same in a CMakeLists.txt. To link what was found:
# ${SLIMGEMM_HWY_TARGET}, nlohmann_json::nlohmann_json, slimgemm::onednn, slimgemm::cblas,
# CUDA::cudart_static. xxhash.h needs XXH_INLINE_ALL and no library; cuBLAS is loaded at run time.
# -DSLIMGEMM_WITHOUT="highway;onednn" builds as on a machine that lacks them.

set(SLIMGEMM_PART_NAMES CUDA HIGHWAY XXHASH JSON ONEDNN CBLAS CUBLAS)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The parts of this build, printed at the end of the configuration and kept in parts.txt.
set_property(GLOBAL PROPERTY SLIMGEMM_PARTS "")

# slimgemm_part(<name> <ON|OFF> <text>): records whether a part is built, and with what or why not.
function(slimgemm_part name state text)
  set_property(GLOBAL APPEND PROPERTY SLIMGEMM_PARTS "${name}: ${state} (${text})")
endfunction()

function(slimgemm_print_parts)
  get_property(parts GLOBAL PROPERTY SLIMGEMM_PARTS)
  foreach(part IN LISTS parts)
    message(STATUS "slimgemm ${part}")
  endforeach()
  list(JOIN parts "\n" lines)
  file(WRITE ${PROJECT_BINARY_DIR}/parts.txt "${lines}\n")
endfunction()

# The host compiler's warnings, for C++ files and for the host side of CUDA files.
set(SLIMGEMM_WARNINGS -Wall -Wextra -Wundef)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND SLIMGEMM_WARNINGS -Wno-restrict)  # GCC 12 warns about every "text" + std::string
endif()

# slimgemm_target(<target>): the project's include path, definitions, warnings and sanitizers.
function(slimgemm_target target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
  if(SLIMGEMM_HAVE_XXHASH)
    # C++ only: nvcc can't have /usr/include as a system folder a second time.
    target_include_directories(${target} SYSTEM PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:${SLIMGEMM_XXHASH_INCLUDE}>)
  endif()
  foreach(part IN LISTS SLIMGEMM_PART_NAMES)
    target_compile_definitions(${target} PRIVATE
      SLIMGEMM_HAVE_${part}=$<BOOL:${SLIMGEMM_HAVE_${part}}>)
  endforeach()

  set(cxx_options ${SLIMGEMM_WARNINGS})
  list(JOIN SLIMGEMM_WARNINGS "," host_warnings)
  # The packed layout's constexpr functions are called on the device: --expt-relaxed-constexpr.
  set(cuda_options --expt-relaxed-constexpr -lineinfo -Xcompiler=${host_warnings})
  if(SLIMGEMM_WERROR)
    list(APPEND cxx_options -Werror)
    list(APPEND cuda_options -Werror=all-warnings)
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")

  if(SLIMGEMM_FUZZ)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  endif()
  if(SLIMGEMM_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SLIMGEMM_SANITIZE} -fno-omit-frame-pointer
                                -fno-sanitize-recover=all>)
    target_link_options(${target} PRIVATE -fsanitize=${SLIMGEMM_SANITIZE})
  endif()
endfunction()

# slimgemm_quick_build(<target> [<hot source>...]): less optimisation for all but the hot sources.
# Templates of JSON and of the option parser take compilers several times as long with it, and more
# so under sanitizers.
function(slimgemm_quick_build target)
  set(level "")
  if(SLIMGEMM_SANITIZE)
    set(level -O0)
    set(hot_level -O1)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(level -O1)
    set(hot_level -O3)
  endif()
  if(level)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${level}>)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target}
      PROPERTIES COMPILE_OPTIONS ${hot_level})
  endif()
endfunction()
