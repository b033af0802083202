// SPDX-License-Identifier: Apache-2.0
#include "python/native/tensor_view.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "python/native/raise.h"

namespace afd::python {
namespace py = pybind11;
namespace {

constexpr const char* kDtypes = "bf16, fp16, fp32, int8, int32, int64, uint8, bool";
constexpr const char* kDltensor = "dltensor";  // Of a capsule that nobody has consumed.
// What DLPack 0.6 has no name for, and PyTorch and NumPy export all the same since 1.0.
constexpr uint8_t kDLBool = 6;

[[noreturn]] void refuse(const std::string& name, const std::string& text) {
    raise(AFD_OPS_INVALID_ARGUMENT, name + " " + text, name);
}

std::string text_of(const py::handle& value) {
    return py::str(value).cast<std::string>();
}

py::tuple tuple_of(const uint64_t* values, int32_t size) {
    py::tuple made(size);
    for (int32_t i = 0; i < size; ++i) made[static_cast<size_t>(i)] = values[i];
    return made;
}

bool is_bfloat16(const py::array& array) {
    // Never destroyed, since the interpreter is gone before the library is.
    static const py::object* const made =
        new py::object(py::module_::import("afd._tensors").attr("BFloat16"));
    return py::isinstance(array, *made);
}

int32_t dtype_of(const std::string& name, const py::array& array) {
    const py::dtype dtype = array.dtype();
    const auto is = [&](char kind, py::ssize_t size) {
        return dtype.kind() == kind && dtype.itemsize() == size && dtype.byteorder() != '>';
    };
    if (is('u', 2) && is_bfloat16(array)) return AFD_OPS_BF16;
    if (is('f', 2)) return AFD_OPS_FP16;
    if (is('f', 4)) return AFD_OPS_FP32;
    if (is('i', 1)) return AFD_OPS_INT8;
    if (is('i', 4)) return AFD_OPS_INT32;
    if (is('i', 8)) return AFD_OPS_INT64;
    if (is('u', 1)) return AFD_OPS_UINT8;
    if (is('b', 1)) return AFD_OPS_BOOL;
    if (text_of(dtype.attr("name")) == "bfloat16") return AFD_OPS_BF16;
    refuse(name,
           "has dtype " + text_of(dtype) + "; operators take " + kDtypes +
               (is('u', 2) ? "; bits of bf16 are afd.bf16(array)" : ""));
}

std::optional<int32_t> dtype_of(const DLDataType& type) {
    if (type.lanes != 1) return {};
    const auto is = [&](uint8_t code, uint8_t bits) {
        return type.code == code && type.bits == bits;
    };
    if (is(kDLBfloat, 16)) return AFD_OPS_BF16;
    if (is(kDLFloat, 16)) return AFD_OPS_FP16;
    if (is(kDLFloat, 32)) return AFD_OPS_FP32;
    if (is(kDLInt, 8)) return AFD_OPS_INT8;
    if (is(kDLInt, 32)) return AFD_OPS_INT32;
    if (is(kDLInt, 64)) return AFD_OPS_INT64;
    if (is(kDLUInt, 8)) return AFD_OPS_UINT8;
    if (is(kDLBool, 8)) return AFD_OPS_BOOL;
    return {};
}

// A tensor of these extents. Strides are counted in steps of `step` bytes, or elements where it is
// 1; without any the memory is contiguous.
template <typename Extent>
afd_ops_tensor tensor_of(const std::string& name,
                         void* data,
                         int32_t dtype,
                         std::span<const Extent> shape,
                         const Extent* strides,
                         Extent step) {
    if (shape.size() > AFD_OPS_RANK_MAX) {
        refuse(name,
               "has " + std::to_string(shape.size()) + " dimensions; operators take at most " +
                   std::to_string(AFD_OPS_RANK_MAX));
    }
    afd_ops_tensor made{};
    made.data = data;
    made.dtype = dtype;
    made.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), made.shape);
    // Those of no elements say nothing. The library takes 0 for "contiguous".
    if (std::find(shape.begin(), shape.end(), Extent{0}) != shape.end()) return made;
    uint64_t contiguous = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
        uint64_t stride = contiguous;
        // That of one element says nothing either: NumPy leaves there what it was cut from.
        if (strides != nullptr && shape[axis] > 1) {
            if (strides[axis] < step || strides[axis] % step != 0) {
                refuse(name, "is not contiguous; copy it first");
            }
            stride = static_cast<uint64_t>(strides[axis] / step);
        }
        made.strides[axis] = stride;
        contiguous = stride * static_cast<uint64_t>(shape[axis]);
    }
    return made;
}

TensorView view_of_array(const std::string& name, const py::array& array) {
    const int32_t dtype = dtype_of(name, array);
    const std::span<const py::ssize_t> shape(array.shape(), static_cast<size_t>(array.ndim()));
    // The memory of an array that is read-only is not written.
    void* const data = const_cast<void*>(array.data());
    return {tensor_of(name, data, dtype, shape, array.strides(), array.itemsize()),
            array.writeable(),
            array};
}

TensorView view_of_dlpack(const std::string& name, const py::object& value) {
    if (py::hasattr(value, "__dlpack_device__")) {
        const auto device = py::int_(py::tuple(value.attr("__dlpack_device__")())[0]).cast<int>();
        if (device != kDLCPU && device != kDLCUDAHost) {
            refuse(name,
                   "is on device " + std::to_string(device) +
                       " of DLPack; operators read memory of the CPU");
        }
    }
    py::object capsule;
    try {
        capsule = value.attr("__dlpack__")();
    } catch (py::error_already_set& error) {
        // Each library has its own way to say that it cannot.
        if (!error.matches(PyExc_BufferError) && !error.matches(PyExc_RuntimeError) &&
            !error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) {
            throw;
        }
        refuse(name, "cannot be exported: " + text_of(error.value()));
    }
    // Kept and not consumed: the memory lives as long as the capsule does.
    void* const managed = PyCapsule_GetPointer(capsule.ptr(), kDltensor);
    if (managed == nullptr) throw py::error_already_set();
    const DLTensor& tensor = static_cast<const DLManagedTensor*>(managed)->dl_tensor;
    const std::optional<int32_t> dtype = dtype_of(tensor.dtype);
    if (!dtype) {
        refuse(name,
               "has the DLPack type (" + std::to_string(tensor.dtype.code) + ", " +
                   std::to_string(tensor.dtype.bits) + ", " + std::to_string(tensor.dtype.lanes) +
                   "); operators take " + kDtypes);
    }
    const std::span<const int64_t> shape(tensor.shape, static_cast<size_t>(tensor.ndim));
    void* const data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    return {tensor_of(name, data, *dtype, shape, tensor.strides, int64_t{1}),
            true,
            py::make_tuple(capsule, value)};
}

// DLPack has had bools since 1.0 only; PyTorch's come as NumPy's, on the same memory.
bool is_bool_of_another_library(const py::object& value) {
    return py::hasattr(value, "dtype") && text_of(value.attr("dtype")) == "torch.bool" &&
           text_of(value.attr("device").attr("type")) == "cpu";
}

// What a consumer of a capsule holds.
struct Exported {
    py::array array;
    std::vector<int64_t> shape, strides;
    DLManagedTensor managed;
};

void give_back(DLManagedTensor* managed) {
    // A consumer may outlive the interpreter, whose memory is then gone with the process.
    if (Py_IsInitialized() == 0) return;
    // It may be any thread.
    const py::gil_scoped_acquire acquired;
    delete static_cast<Exported*>(managed->manager_ctx);
}

void destroy(PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, kDltensor) == 0) return;  // Its consumer gives it back.
    give_back(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kDltensor)));
}

}  // namespace

py::tuple TensorView::shape() const {
    return tuple_of(tensor.shape, tensor.rank);
}

py::tuple TensorView::strides() const {
    return tuple_of(tensor.strides, tensor.rank);
}

TensorView view_of(const std::string& name, const py::object& value) {
    if (py::isinstance<py::array>(value)) return view_of_array(name, value.cast<py::array>());
    if (!is_bool_of_another_library(value)) {
        if (py::hasattr(value, "__dlpack__")) return view_of_dlpack(name, value);
        if (!py::hasattr(value, "__array_interface__")) {
            refuse(name,
                   "is a " + text_of(py::type::of(value).attr("__name__")) +
                       "; give a NumPy array, or anything with __dlpack__ or "
                       "__array_interface__");
        }
    }
    return view_of_array(name, py::module_::import("numpy").attr("asarray")(value));
}

py::capsule bf16_capsule(const py::array& array) {
    // As NumPy says of its own: this form of DLPack cannot say that memory is only read.
    if (!array.writeable()) throw py::buffer_error("the array is read-only; give its copy()");
    for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
        if (array.strides(axis) % 2 == 0) continue;
        throw py::buffer_error(
            "the array's elements are an odd number of bytes apart; give its "
            "copy()");
    }
    auto made = std::make_unique<Exported>();
    made->array = array;
    for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
        made->shape.push_back(array.shape(axis));
        made->strides.push_back(array.strides(axis) / 2);
    }
    made->managed = {.dl_tensor = {.data = const_cast<void*>(array.data()),
                                   .device = {kDLCPU, 0},
                                   .ndim = static_cast<int32_t>(array.ndim()),
                                   .dtype = {kDLBfloat, 16, 1},
                                   .shape = made->shape.data(),
                                   .strides = made->strides.data(),
                                   .byte_offset = 0},
                     .manager_ctx = made.get(),
                     .deleter = give_back};
    PyObject* const capsule = PyCapsule_New(&made->managed, kDltensor, destroy);
    if (capsule == nullptr) throw py::error_already_set();
    static_cast<void>(made.release());  // destroy() or the consumer deletes it.
    return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace afd::python
