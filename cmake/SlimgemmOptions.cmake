# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by every target: slimgemm_target(<target>) applies them.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The parts of this build, printed at the end of the configuration.
set_property(GLOBAL PROPERTY SLIMGEMM_PARTS "")

# slimgemm_part(<name> <ON|OFF> <text>): records whether a part is built, and why not.
function(slimgemm_part name state text)
  set_property(GLOBAL APPEND PROPERTY SLIMGEMM_PARTS "${name}: ${state} - ${text}")
endfunction()

function(slimgemm_print_parts)
  get_property(parts GLOBAL PROPERTY SLIMGEMM_PARTS)
  foreach(part IN LISTS parts)
    message(STATUS "slimgemm ${part}")
  endforeach()
endfunction()

function(slimgemm_target target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SLIMGEMM_WERROR}>>:-Werror>)
  if(SLIMGEMM_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SLIMGEMM_SANITIZE} -fno-omit-frame-pointer
                                -fno-sanitize-recover=all>)
    target_link_options(${target} PRIVATE -fsanitize=${SLIMGEMM_SANITIZE})
  endif()
endfunction()
