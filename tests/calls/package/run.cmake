# SPDX-License-Identifier: Apache-2.0
#
# Installs the component "ops" into an empty prefix, builds the examples in C and C++ against it as
# another project would, by CMake and by pkg-config, and runs them. Oracle: the rows by hand.
#   cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DWORK_DIR=... -P run.cmake
file(REMOVE_RECURSE ${WORK_DIR})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(expect text)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "no \"${text}\" in:\n${output}")
  endif()
endfunction()

set(prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component ops --prefix ${prefix})

# An installed header finds what it includes of this project. To compile each takes minutes.
set(headers ${prefix}/include/afd)
file(GLOB_RECURSE installed RELATIVE ${headers} ${headers}/*.h)
list(LENGTH installed num_installed)
if(num_installed LESS 100)
  message(FATAL_ERROR "${num_installed} headers in ${headers}")
endif()
foreach(header ${installed})
  file(STRINGS ${headers}/${header} includes REGEX "^#include \"")
  foreach(include ${includes})
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" path "${include}")
    if(NOT EXISTS ${headers}/${path})
      message(FATAL_ERROR "${header} includes ${path}, which is not installed")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/tests/calls/package -B ${WORK_DIR}/build
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER}
  -DEXAMPLES=${SOURCE_DIR}/calls/examples)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
foreach(program route_c route_cc)
  run(${WORK_DIR}/build/${program})
  expect("expanded_x 1 2 2 3 1 3\n")
  expect("expanded_row_idx 4 0 1 2 3 5\n")
endforeach()

# Token 0: half of 1 and half of 3; token 1: twice 2, its other slot is masked.
run(${WORK_DIR}/build/own_parts)
expect("selected local and multiply\n")
expect("sent 3 rows; out 2 2 2 2 4 4 4 4\n")
expect("refused: multiply does not take chunks of a micro-batch; max_chunk_tokens is 2 and must be 0\n")

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(sh -c "cc -Wall -Wextra -Wpedantic -Werror -o ${WORK_DIR}/by_pkg_config ${SOURCE_DIR}/calls/examples/route.c $(pkg-config --cflags --libs afd_ops) -Wl,-rpath,${prefix}/${LIBDIR}")
run(${WORK_DIR}/by_pkg_config)
expect("refused: moe_init_routing_v3: there is no attribute expert_nmu; ")
expect("; did you mean expert_num?\n")
expect("expert_tokens_count_or_cumsum 2 2 0 2\n")

# The version is in the name that programs are linked with.
run(readelf -d ${prefix}/${LIBDIR}/libafd_ops.so)
expect("soname: [libafd_ops.so.0.1]")
