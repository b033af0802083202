// SPDX-License-Identifier: Apache-2.0
#pragma once

// The package's exceptions (python/afd/_errors.py) from C++. They are thrown, as pybind11 wants it,
// and go no further than the module's edge: nothing below it throws.

#include <pybind11/pybind11.h>

#include <string_view>

namespace afd::python {

// The exception of a code of afd_ops.h. Bytes that are no UTF-8, where a text was cut, are
// replaced.
[[noreturn]] void raise(int code, std::string_view text, std::string_view parameter);

}  // namespace afd::python
