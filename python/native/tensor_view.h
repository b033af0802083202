// SPDX-License-Identifier: Apache-2.0
#pragma once

// TensorView: the memory of a Python object, as the operators see it. Nothing is copied.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "calls/afd_ops.h"

namespace afd::python {

struct TensorView {
    afd_ops_tensor tensor;  // Without a name.
    bool is_writable;
    pybind11::object owner;  // Keeps the memory.

    pybind11::tuple shape() const;
    pybind11::tuple strides() const;  // In elements; all 0 where there are none.
};

// Of a NumPy array, or of anything with __dlpack__ or __array_interface__. afd.BFloat16, and what
// NumPy or DLPack call bfloat16, is bf16.
// Raises AFD_OPS_INVALID_ARGUMENT, with the parameter `name`.
TensorView view_of(const std::string& name, const pybind11::object& value);

// What __dlpack__ of an afd.BFloat16 returns: a capsule that keeps the array until its consumer is
// done with it. REQUIRES: elements of two bytes.
pybind11::capsule bf16_capsule(const pybind11::array& array);

}  // namespace afd::python
