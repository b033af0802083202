// SPDX-License-Identifier: Apache-2.0
#include "python/native/operator_call.h"

#include <algorithm>
#include <new>

#include "python/native/gil_release.h"
#include "python/native/raise.h"

namespace afd::python {
namespace py = pybind11;
namespace {

void check(int code, const afd_ops_error& error) {
    if (code != AFD_OPS_OK) raise(code, error.text, error.parameter);
}

// Scratch of the calling thread, which grows as needed. What one large call needed is given back
// after it.
class Scratch {
  public:
    std::byte* get(size_t bytes) {
        if (have_bytes_ < bytes) {
            release();
            memory_.reset(static_cast<std::byte*>(
                ::operator new (bytes, std::align_val_t{AFD_OPS_ALIGNMENT})));
            have_bytes_ = bytes;
        }
        return memory_.get();
    }
    void end_call() {
        if (have_bytes_ > kKeptBytesMax) release();
    }

  private:
    // More than the calls of a decoding step need; to get and touch it anew takes a call that
    // needs more a small part of its own time.
    static constexpr size_t kKeptBytesMax = 256 << 20;

    struct Free {
        void operator()(std::byte* memory) const {
            ::operator delete (memory, std::align_val_t{AFD_OPS_ALIGNMENT});
        }
    };
    void release() {
        memory_.reset();
        have_bytes_ = 0;
    }

    std::unique_ptr<std::byte, Free> memory_;
    size_t have_bytes_ = 0;
};

thread_local Scratch scratch;

size_t bytes_of(const afd_ops_tensor& tensor) {
    constexpr size_t kBytes[] = {2, 2, 4, 1, 4, 8, 1, 1};
    size_t bytes = kBytes[tensor.dtype];
    for (int32_t axis = 0; axis < tensor.rank; ++axis) bytes *= tensor.shape[axis];
    return bytes;
}

}  // namespace

OperatorCall::OperatorCall(const std::string& name,
                           const std::string& attributes,
                           std::vector<std::pair<std::string, TensorView>> tensors,
                           const Options& options)
    : tensors_(std::move(tensors)) {
    std::vector<afd_ops_tensor> given;
    for (const auto& [tensor, view] : tensors_) {
        given.push_back(view.tensor);
        given.back().name = tensor.c_str();
    }
    std::vector<const char*> outputs_given;
    for (const std::string& output : options.outputs_given) outputs_given.push_back(output.c_str());
    const afd_ops_options wanted{
        .is_reference = options.is_reference ? 1 : 0,
        .num_threads = options.num_threads,
        .numeric_class = options.numeric_class ? options.numeric_class->c_str() : nullptr,
        .memory_max = options.memory_max,
        .outputs_given = outputs_given.data(),
        .num_outputs_given = outputs_given.size()};
    afd_ops_call* made = nullptr;
    afd_ops_error error;
    int code = AFD_OPS_OK;
    {
        const GilRelease released;
        code = afd_ops_query(
            name.c_str(), attributes.c_str(), given.data(), given.size(), &wanted, &made, &error);
    }
    check(code, error);
    call_.reset(made);
}

std::vector<OperatorCall::Output> OperatorCall::outputs() const {
    std::vector<Output> made;
    for (size_t i = 0; i < afd_ops_num_outputs(call_.get()); ++i) {
        const TensorView view{afd_ops_output(call_.get(), i), true, {}};
        made.push_back({view.tensor.name, view.tensor.dtype, view.shape()});
    }
    return made;
}

bool OperatorCall::takes(size_t index, const TensorView& view) const {
    const afd_ops_tensor wanted = afd_ops_output(call_.get(), index);
    const afd_ops_tensor& given = view.tensor;
    const auto is_same = [&](const uint64_t* a, const uint64_t* b) {
        return std::equal(a, a + wanted.rank, b);
    };
    if (!view.is_writable || given.dtype != wanted.dtype || given.rank != wanted.rank ||
        !is_same(given.shape, wanted.shape)) {
        return false;
    }
    return bytes_of(wanted) == 0 || is_same(given.strides, wanted.strides);
}

void OperatorCall::write_to(std::vector<TensorView> outputs) {
    outputs_ = std::move(outputs);
    pointers_.clear();
    for (const TensorView& view : outputs_) pointers_.push_back(view.tensor.data);
}

void OperatorCall::run() {
    const size_t size = afd_ops_workspace_bytes(call_.get());
    std::byte* const workspace = scratch.get(size);
    afd_ops_error error;
    int code = AFD_OPS_OK;
    {
        const GilRelease released;
        code = afd_ops_run(call_.get(), pointers_.data(), workspace, size, &error);
        scratch.end_call();
    }
    check(code, error);
}

size_t OperatorCall::num_bytes() const {
    size_t sum = 0;
    for (const auto& [name, view] : tensors_) sum += bytes_of(view.tensor);
    for (const TensorView& view : outputs_) sum += bytes_of(view.tensor);
    return sum;
}

}  // namespace afd::python
