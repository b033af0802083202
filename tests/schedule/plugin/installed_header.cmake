# SPDX-License-Identifier: Apache-2.0
#
# Installs the component "plugin" into an empty prefix and builds the example against it, as who has
# no more than installed programs does (docs/adding/plugin.md).
#   cmake -DBUILD_DIR=... -DCOMPILER=... -DPLUGIN=....c -DWORK_DIR=... -P installed_header.cmake
file(REMOVE_RECURSE ${WORK_DIR})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component plugin --prefix ${WORK_DIR}/prefix)
file(READ ${PLUGIN} source)
string(REPLACE "\"schedule/plugin/plugin_api.h\"" "<afd/plugin_api.h>" installed "${source}")
if(installed STREQUAL source)
  message(FATAL_ERROR "${PLUGIN} includes the header of the repository no more")
endif()
file(WRITE ${WORK_DIR}/plugin.c "${installed}")
run(${COMPILER} -std=c99 -Wall -Wextra -Werror -shared -fPIC -I ${WORK_DIR}/prefix/include
  ${WORK_DIR}/plugin.c -o ${WORK_DIR}/plugin.so)
