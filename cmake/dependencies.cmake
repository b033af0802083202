# SPDX-License-Identifier: Apache-2.0
#
# Every library comes from Debian. scripts/packages/ has the lists: product.txt alone configures,
# builds and runs the programs; tests.txt and bench.txt are for AFD_BUILD_TESTS and AFD_BUILD_BENCH.

# afd_require(FOUND WHAT PACKAGE SETUP): stops, with the way out, unless WHAT has been found.
function(afd_require found what package setup)
  if(NOT found)
    message(FATAL_ERROR "${what} is missing: install the Debian package ${package}, or run ${setup}")
  endif()
endfunction()

macro(afd_find_package name package)
  find_package(${name} ${ARGN} QUIET)
  afd_require("${${name}_FOUND}" ${name} ${package} scripts/setup)
endmacro()

afd_find_package(Boost libboost-dev 1.74)
find_package(Protobuf QUIET)
afd_require("${Protobuf_FOUND}" "The Protobuf library" libprotobuf-dev scripts/setup)
afd_require("${Protobuf_PROTOC_EXECUTABLE}" "protoc" protobuf-compiler scripts/setup)
afd_find_package(CLI11 libcli11-dev)
afd_find_package(fmt libfmt-dev)
afd_find_package(spdlog libspdlog-dev)
afd_find_package(nlohmann_json nlohmann-json3-dev)
afd_find_package(tomlplusplus libtomlplusplus-dev)
find_package(Threads REQUIRED)
afd_find_package(PkgConfig pkg-config)
pkg_check_modules(libuv QUIET IMPORTED_TARGET libuv)
afd_require("${libuv_FOUND}" libuv libuv1-dev scripts/setup)
pkg_check_modules(pcre2 QUIET IMPORTED_TARGET libpcre2-8)
afd_require("${pcre2_FOUND}" PCRE2 libpcre2-dev scripts/setup)
pkg_check_modules(utf8proc QUIET IMPORTED_TARGET libutf8proc)
afd_require("${utf8proc_FOUND}" utf8proc libutf8proc-dev scripts/setup)
if(AFD_BUILD_TESTS)
  find_package(GTest QUIET)
  afd_require("${GTest_FOUND}" "GoogleTest, for AFD_BUILD_TESTS," libgtest-dev "scripts/setup --tests")
  if(NOT TARGET GTest::gmock)
    afd_require(FALSE "GoogleMock, for AFD_BUILD_TESTS," libgmock-dev "scripts/setup --tests")
  endif()
endif()
if(AFD_BUILD_BENCH)
  find_package(benchmark QUIET)
endif()
