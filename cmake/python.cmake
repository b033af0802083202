# SPDX-License-Identifier: Apache-2.0
#
# AFD_NUMPY_PYTHON: the Python that the tests use and that the package is made for. Unless it is
# given, the first that has NumPy: the system's own before one from PATH.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(candidate /usr/bin/python3 ${Python3_EXECUTABLE})
  if(NOT AFD_NUMPY_PYTHON)
    execute_process(COMMAND ${candidate} -c "import numpy"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(AFD_NUMPY_PYTHON ${candidate})
    endif()
  endif()
endforeach()
afd_require("${AFD_NUMPY_PYTHON}" "NumPy, for the tests and the Python package," python3-numpy
  "scripts/setup --python")
