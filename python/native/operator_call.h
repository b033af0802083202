// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorCall: an afd_ops_call of Python. Made, it has been judged; then it is given the memory of
// its outputs, and may be run again and again. Errors of both are raised.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/tensor_view.h"

namespace afd::python {

class OperatorCall {
  public:
    struct Options {
        bool is_reference;
        uint32_t num_threads;
        std::optional<std::string> numeric_class;
        uint64_t memory_max;
        std::vector<std::string> outputs_given;
    };
    struct Output {
        std::string name;
        int32_t dtype;
        pybind11::tuple shape;
    };

    // Keeps the memory of the tensors. `attributes`: JSON.
    OperatorCall(const std::string& name,
                 const std::string& attributes,
                 std::vector<std::pair<std::string, TensorView>> tensors,
                 const Options& options);

    std::vector<Output> outputs() const;
    // Whether `view` can be the memory of output `index`.
    bool takes(size_t index, const TensorView& view) const;
    // REQUIRES: one for each output, which takes it.
    void write_to(std::vector<TensorView> outputs);

    // REQUIRES: write_to, where there are outputs.
    void run();

    double operations() const { return afd_ops_operations(call_.get()); }
    size_t num_bytes() const;  // Of all tensors, in and out.

  private:
    struct Free {
        void operator()(afd_ops_call* call) const { afd_ops_free(call); }
    };

    std::vector<std::pair<std::string, TensorView>> tensors_;
    std::vector<TensorView> outputs_;
    std::vector<void*> pointers_;  // Of each output.
    std::unique_ptr<afd_ops_call, Free> call_;
};

}  // namespace afd::python
