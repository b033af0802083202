// SPDX-License-Identifier: Apache-2.0
#include "python/native/raise.h"

namespace afd::python {
namespace {

pybind11::object unicode(std::string_view bytes) {
    PyObject* made =
        PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
    if (made == nullptr) throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::object>(made);
}

}  // namespace

void raise(int code, std::string_view text, std::string_view parameter) {
    const auto error_of = pybind11::module_::import("afd._errors").attr("error_of");
    const pybind11::object error = error_of(code, unicode(text), unicode(parameter));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw pybind11::error_already_set();
}

}  // namespace afd::python
