# SPDX-License-Identifier: Apache-2.0
#
# afd_flags: what every target of ours is compiled with. Promise 1 (same bits) forbids the compiler
# to contract a*b+c or to reorder floating-point sums: -ffp-contract=off, and no fast-math flag
# anywhere (tests/tidy checks it).
add_library(afd_flags INTERFACE)
target_include_directories(afd_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(afd_flags INTERFACE
  -ffp-contract=off
  # Libraries and programs alike, so that they share precompiled headers.
  -fPIC
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wcast-align -Wnon-virtual-dtor -Wvla
  # g++ 12 takes "literal" + std::string at -O3 for an overlapping copy (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Several sources in one look to g++ like headers with unnamed namespaces, and clang takes an alias
  # that each of them declares for itself for one that hides the other's.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<AND:$<CXX_COMPILER_ID:Clang>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-shadow>
  $<$<BOOL:${AFD_WERROR}>:-Werror>)
if(AFD_SANITIZE)
  target_compile_options(afd_flags INTERFACE
    -fsanitize=${AFD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(afd_flags INTERFACE -fsanitize=${AFD_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # GNU's linker takes seven times as long for what clang's sanitizers make.
    string(REGEX MATCH "^[0-9]+" major ${CMAKE_CXX_COMPILER_VERSION})
    find_program(AFD_LLD ld.lld-${major})
    if(AFD_LLD)
      target_link_options(afd_flags INTERFACE -fuse-ld=lld-${major})
    endif()
  endif()
  if(AFD_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # What the headers of others do with integers and pointers is their tests' business; checking it
    # was a quarter of the time to compile. Addresses are checked there too.
    target_compile_options(afd_flags INTERFACE
      -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/undefined_ignored.txt)
  endif()
endif()

# afd_library(NAME sources...): a static library named afd_NAME with the alias afd::NAME.
function(afd_library name)
  add_library(afd_${name} STATIC ${ARGN})
  add_library(afd::${name} ALIAS afd_${name})
  target_link_libraries(afd_${name} PUBLIC afd_flags)
endfunction()

# afd_maths_library(NAME sources...): likewise, of loops over rows, which are written to be
# vectorised; -O2 does that only for known trip counts. The thread sanitizer looks at their callers.
# Its operators' records use the same short names, each in its file.
function(afd_maths_library name)
  afd_library(${name} ${ARGN})
  set_target_properties(afd_${name} PROPERTIES UNITY_BUILD OFF)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT AFD_SANITIZE MATCHES "thread")
    target_compile_options(afd_${name} PRIVATE -O3)
  endif()
  if(AFD_SANITIZE MATCHES "address")
    afd_precompile(afd_${name} standard -O2)
  else()
    afd_precompile(afd_${name} standard)
  endif()
endfunction()

# afd_maths_sources(sources...): files of another library that are such loops, in a release build.
function(afd_maths_sources)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O3)
  endif()
endfunction()

# afd_command_line(sources...): files whose work is to read a command line with CLI11, which takes
# seconds to optimise and never long to run: a release does not. Where nothing is optimised they are
# as all others, with precompiled headers and several at once.
function(afd_command_line)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# afd_crash_points(targets...): AFD_CRASH_POINT (proto/crash_point.h) means something in their files.
function(afd_crash_points)
  if(TARGET afd_crash_points)
    foreach(target IN LISTS ARGN)
      target_link_libraries(${target} PRIVATE afd_crash_points)
    endforeach()
  endif()
endfunction()

# The tests of one label, and the programs that they run: for sanitizers that run no others.
add_custom_target(unit_tests)
add_custom_target(protocol_tests)

# afd_test(NAME SOURCES a.cc ... LIBRARIES x ... LABELS unit): one GoogleTest executable.
# ENTRY: ctest runs it whole, under this name, because its tests share what the first one computes.
# LABELS: unit | protocol | integration | golden | tidy. Sanitizer runs select by label.
# HEADERS: its group of precompiled headers; test, if none is given.
# ENVIRONMENT: a variable of the tests, as NAME=VALUE.
# TOGETHER: where releases compile several files at once, only those of one of these folders are:
# files of others use the same names for different things. Without it, all of them.
#
# In a release no test is optimised, only what makes their large inputs: compiling tests takes longer
# than running them.
function(afd_test name)
  cmake_parse_arguments(arg "" "ENTRY;TIMEOUT;HEADERS;ENVIRONMENT" "SOURCES;LIBRARIES;LABELS;TOGETHER" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(arg_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_MODE GROUP)
    foreach(source IN LISTS arg_SOURCES)
      get_filename_component(folder ${source} DIRECTORY)
      if(folder IN_LIST arg_TOGETHER)
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
      endif()
    endforeach()
  endif()
  target_link_libraries(${name} PRIVATE afd_flags ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  if(NOT arg_HEADERS)
    set(arg_HEADERS test)
  endif()
  set(level "")
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set(level -O0)
  endif()
  target_compile_options(${name} PRIVATE ${level})
  afd_precompile(${name} ${arg_HEADERS} ${level})
  foreach(label IN LISTS arg_LABELS)
    if(TARGET ${label}_tests)
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
  if(arg_ENTRY)
    add_test(NAME ${arg_ENTRY} COMMAND ${name})
    set_tests_properties(${arg_ENTRY} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  elseif(AFD_SANITIZE MATCHES "address" AND arg_LABELS STREQUAL "unit")
    # A process with the address sanitizer takes a quarter of a second to start, and most of these
    # tests no time at all: a process for each quarter of them.
    math(EXPR timeout "10 * ${arg_TIMEOUT}")
    foreach(quarter RANGE 3)
      add_test(NAME ${name}.${quarter} COMMAND ${name})
      set_tests_properties(${name}.${quarter} PROPERTIES LABELS unit TIMEOUT ${timeout}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${quarter};${arg_ENVIRONMENT}")
    endforeach()
  else()
    # A parameter's value may be printed as its bytes, which are other ones in each build.
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
      PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
endfunction()
