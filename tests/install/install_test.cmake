# SPDX-License-Identifier: Apache-2.0
# cmake -P: installs a build of the library under WORK_DIR, moves it, and builds and runs the
# consumers against it. OPTIONS, separated by "|", are those of a build made for the purpose;
# without any, BUILD_DIR is installed.

function(run)
  list(JOIN ARGN " " line)
  message("$ ${line}")
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed with ${result}: ${line}")
  endif()
endfunction()

foreach(folder prefix moved consumer consumer_c)
  file(REMOVE_RECURSE ${WORK_DIR}/${folder})
endforeach()
if(OPTIONS)
  string(REPLACE "|" ";" options "${OPTIONS}")
  string(REPLACE "," "\\;" options "${options}")
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
      -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${CXX_COMPILER} ${options}
      -DSLIMGEMM_BUILD_TOOLS=OFF -DSLIMGEMM_BUILD_TESTS=OFF -DSLIMGEMM_BUILD_EXAMPLES=OFF
      -DSLIMGEMM_BUILD_BENCHMARKS=OFF)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG} --parallel)
  set(BUILD_DIR ${WORK_DIR}/build)
endif()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)  # a package must not remember where it was

foreach(consumer consumer consumer_c)
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/${consumer} -B ${WORK_DIR}/${consumer}
      -G ${GENERATOR} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
      -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/${consumer} --config ${CONFIG})
  run(${WORK_DIR}/${consumer}/consumer)
endforeach()
if(EXISTS ${WORK_DIR}/moved/bin/slimgemm)
  run(${WORK_DIR}/moved/bin/slimgemm --version)
endif()
