// SPDX-License-Identifier: Apache-2.0
//
// afd._native: libafd_ops for Python. What it has is for the package alone, whose files say what
// users see.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>

#include "python/native/gil_release.h"
#include "python/native/operator_call.h"
#include "python/native/tensor_view.h"

namespace py = pybind11;
using afd::python::GilRelease;
using afd::python::OperatorCall;
using afd::python::TensorView;

namespace {

std::vector<std::string> names_by(const char* (*name_of)(size_t)) {
    std::vector<std::string> names;
    while (const char* const name = name_of(names.size())) names.emplace_back(name);
    return names;
}

py::tuple machine_limits(uint32_t num_threads) {
    double bytes = 0;
    double operations = 0;
    {
        const GilRelease released;
        afd_ops_machine_limits(num_threads, &bytes, &operations);
    }
    if (bytes == 0) {
        throw std::runtime_error(
            "the machine's limits could not be measured: no memory, or no "
            "more threads");
    }
    return py::make_tuple(bytes, operations);
}

void define_tensors(py::module_& module) {
    py::class_<TensorView>(module, "TensorView")
        .def_property_readonly(
            "data", [](const TensorView& v) { return reinterpret_cast<uintptr_t>(v.tensor.data); })
        .def_property_readonly("dtype", [](const TensorView& v) { return v.tensor.dtype; })
        .def_property_readonly("shape", &TensorView::shape)
        .def_property_readonly("strides", &TensorView::strides)
        .def_readonly("is_writable", &TensorView::is_writable);
    module.def("view_of", &afd::python::view_of);
    module.def("bf16_capsule", &afd::python::bf16_capsule);
}

void define_calls(py::module_& module) {
    py::class_<OperatorCall>(module, "OperatorCall")
        .def(py::init([](const std::string& name,
                         const std::string& attributes,
                         std::vector<std::pair<std::string, TensorView>> tensors,
                         bool reference,
                         uint32_t num_threads,
                         std::optional<std::string> numeric_class,
                         uint64_t memory_max,
                         std::vector<std::string> outputs_given) {
                 return std::make_unique<OperatorCall>(
                     name,
                     attributes,
                     std::move(tensors),
                     OperatorCall::Options{reference,
                                           num_threads,
                                           std::move(numeric_class),
                                           memory_max,
                                           std::move(outputs_given)});
             }),
             py::arg("name"),
             py::arg("attributes"),
             py::arg("tensors"),
             py::arg("reference"),
             py::arg("num_threads"),
             py::arg("numeric_class"),
             py::arg("memory_max"),
             py::arg("outputs_given"))
        .def("outputs",
             [](const OperatorCall& call) {
                 py::list made;
                 for (const OperatorCall::Output& output : call.outputs()) {
                     made.append(py::make_tuple(output.name, output.dtype, output.shape));
                 }
                 return made;
             })
        .def("takes", &OperatorCall::takes)
        .def("write_to", &OperatorCall::write_to)
        .def("run", &OperatorCall::run)
        .def_property_readonly("operations", &OperatorCall::operations)
        .def_property_readonly("num_bytes", &OperatorCall::num_bytes);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.def("version", &afd_ops_version);
    module.def("operators", [] { return names_by(&afd_ops_name); });
    module.def("numeric_classes", [] { return names_by(&afd_ops_class); });
    module.def("describe", [](const std::string& name) { return afd_ops_describe(name.c_str()); });
    module.def("machine_limits", &machine_limits);
    define_tensors(module);
    define_calls(module);
}
