# SPDX-License-Identifier: Apache-2.0
#
# Half of the time to compile a file of ours is reading headers of others. These groups of headers
# are compiled once and shared by the targets that name them; ours are never among them, so an edit
# recompiles only the files that include what was edited. A file still includes what it uses:
# tests/tidy/name_rules.py looks.

# afd_header_group(NAME HEADERS <vector>... LIBRARIES lib...): LIBRARIES have the definitions with
# which the headers are read; every target of the group links them too.
function(afd_header_group name)
  cmake_parse_arguments(arg "" "" "HEADERS;LIBRARIES" ${ARGN})
  set_property(GLOBAL PROPERTY afd_${name}_headers ${arg_HEADERS})
  set_property(GLOBAL PROPERTY afd_${name}_libraries ${arg_LIBRARIES})
endfunction()

# afd_precompile(TARGET GROUP [LEVEL]): LEVEL, where the target is compiled with another -O than the
# build is: -O0 and the rest cannot share such headers.
function(afd_precompile target group)
  if(NOT AFD_PRECOMPILE)
    return()
  endif()
  set(level ${ARGN})
  string(REPLACE "-" "_" headers "afd_${group}_headers${level}")
  if(NOT TARGET ${headers})
    set(empty ${PROJECT_BINARY_DIR}/precompiled/${headers}.cc)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    get_property(group_headers GLOBAL PROPERTY afd_${group}_headers)
    get_property(group_libraries GLOBAL PROPERTY afd_${group}_libraries)
    add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${empty})
    set_target_properties(${headers} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(${headers} PRIVATE afd_flags ${group_libraries})
    target_precompile_headers(${headers} PRIVATE ${group_headers})
    target_compile_options(${headers} PRIVATE ${level})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # g++ 12 forgets which headers are the system's when they come precompiled, and reports what its
  # analysis of flow suspects inside them. Where nothing is precompiled, as with the thread
  # sanitizer, the warnings stay on.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      -Wno-array-bounds -Wno-dangling-pointer -Wno-free-nonheap-object -Wno-maybe-uninitialized
      -Wno-nonnull -Wno-stringop-overflow -Wno-stringop-overread -Wno-use-after-free)
  endif()
endfunction()

set(standard
  <algorithm> <array> <atomic> <bit> <cerrno> <charconv> <chrono> <cmath> <cstddef> <cstdint>
  <cstdio> <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional> <initializer_list>
  <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string>
  <string_view> <thread> <tuple> <type_traits> <unordered_map> <utility> <variant> <vector>)
set(json <nlohmann/json.hpp>)
set(test <gtest/gtest.h> <gmock/gmock.h>)

afd_header_group(standard HEADERS ${standard})
afd_header_group(json HEADERS ${standard} ${json} LIBRARIES nlohmann_json::nlohmann_json)
afd_header_group(daemon
  HEADERS ${standard} ${json} <fmt/core.h> <proto/client.pb.h> <proto/control.pb.h> <uv.h>
  LIBRARIES nlohmann_json::nlohmann_json fmt::fmt afd::proto PkgConfig::libuv)
afd_header_group(test HEADERS ${standard} ${test} LIBRARIES GTest::gmock)
afd_header_group(json_test
  HEADERS ${standard} ${json} ${test} LIBRARIES nlohmann_json::nlohmann_json GTest::gmock)
