# SPDX-License-Identifier: Apache-2.0
#
# With CMAKE_UNITY_BUILD, how many files are compiled at once. What they include is read, and its
# templates are instantiated, once for all of them: 64 take a third less time than four times 16.
# But many cores want many compilers, and one of 64 files takes up to 2 GiB.
if(CMAKE_UNITY_BUILD AND NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR share_mib "${memory_mib} / ${cores}")
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
  if(cores LESS_EQUAL 4 AND share_mib GREATER 3000)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 64)
  endif()
endif()
