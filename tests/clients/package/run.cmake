# SPDX-License-Identifier: Apache-2.0
#
# Installs the component "client" into an empty prefix, builds the example against it as another
# project would, and runs it: without arguments it must answer with its usage and exit code 2.
#   cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DWORK_DIR=... -P run.cmake
file(REMOVE_RECURSE ${WORK_DIR})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component client --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/tests/clients/package -B ${WORK_DIR}/build
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_CXX_FLAGS=${SANITIZE}
  -DEXAMPLE_SOURCE=${SOURCE_DIR}/clients/examples/generate.cc)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
execute_process(COMMAND ${WORK_DIR}/build/consumer RESULT_VARIABLE result ERROR_VARIABLE output)
if(NOT result EQUAL 2 OR NOT output MATCHES "usage: ")
  message(FATAL_ERROR "the consumer exited with ${result}: ${output}")
endif()
