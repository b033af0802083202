// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorCall: one call of an operator by name, in two steps.
//
//   AFD_ASSIGN(auto call, OperatorCall::make(*find_operator(name), tensors, attributes, options));
//   for (const NamedTensor& output : call->outputs()) ... memory for its shape
//   AFD_TRY(call->run(memory, workspace));
//
// make() judges names, kinds, shapes, dtypes and the memory that the call needs, and does all that
// allocates: nothing has been written when it refuses. run() judges the values that only the
// operator looks at, writes the outputs and what the record calls in place, and allocates nothing
// but the text of an error; the references are the exception.
//
// Views are of the caller's memory and are never copied; it outlives the call. Windows of several
// workers are one tensor [workers, bytes], or one tensor [bytes] a worker, all under the one name.
//
// For who adds an operator: a function of calls/prepare_operators.h fills a request by its record
// and hands over what is known then,
//
//   auto& r = call.keep<XRequest>();
//   AFD_TRY(call.fill(kXSpec, r));              attributes, inputs and tensors in place
//   r.y = shape_of(r.x.dtype, {...});           the operator's own shapes; off: none
//   AFD_TRY(check_x(r));
//   call.returns(kXSpec, r);                    every output that has a shape
//   call.ready(x_workspace_bytes(r), fast, reference);

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calls/named_tensor.h"
#include "ops/format/numeric_class.h"
#include "ops/record/operator_spec.h"
#include "ops/reference/product.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::calls {

struct CallOptions {
    bool is_reference = false;
    ops::NumericClass numeric_class = ops::best_numeric_class();
    // Of the reference, which has no class of its own: what becomes of bf16 subnormals.
    ops::reference::Subnormals subnormals = ops::reference::Subnormals::kKept;
    // Bytes that outputs and workspace may need together; 0: what this process can still get.
    uint64_t memory_max = 0;
    // Outputs whose memory there is already; it does not count.
    std::vector<std::string> outputs_given = {};
    ops::Parallel* parallel = nullptr;
};

// The extent of an axis of a tensor that its operator has not judged yet: 0 if there is no such
// axis.
inline size_t extent(const ops::ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[axis] : 0;
}

// The shape of an output, without memory.
inline ops::TensorView shape_of(ops::DType dtype, std::initializer_list<size_t> shape) {
    return ops::make_tensor<void>(nullptr, dtype, shape);
}

class OperatorCall;

struct RegisteredOperator {
    const ops::OperatorSpec* spec;
    // Makes the call ready. Errors: the operator's.
    Result<> (*prepare)(OperatorCall& call);
};

class OperatorCall {
  public:
    using Run = std::function<Result<>(std::span<std::byte> workspace)>;
    using Reference = std::function<Result<>()>;

    // `attributes`: a JSON object. Errors: kInvalidArgument, naming what is unknown and what there
    // is, what is missing, what the operator refuses, or a tensor in place that shares memory with
    // another tensor or window (contexts and segments may lie in one another); kResourceExhausted
    // above memory_max, beginning with the parameter that most of the memory is for. REQUIRES:
    // options.parallel is set; numeric_class is supported.
    static Result<std::unique_ptr<OperatorCall>> make(const RegisteredOperator& entry,
                                                      std::vector<NamedTensor> tensors,
                                                      const nlohmann::json& attributes,
                                                      const CallOptions& options);

    // The outputs that are on, in the record's order; their views have no memory.
    std::span<const NamedTensor> outputs() const { return outputs_; }
    // Of the tensors given, those that run() changes.
    std::span<const NamedTensor> in_place() const { return in_place_; }
    size_t workspace_bytes() const { return workspace_bytes_; }
    // Multiplications and additions of its matrices; 0 where it only moves and sums rows.
    double operations() const { return operations_; }
    // Of all tensors, in and out, each once.
    uint64_t tensor_bytes() const;

    // `memory`: of each output, in their order, aligned for its elements; rows that an operator
    // leaves untouched stay as they are. Errors: kInvalidArgument where an output is not aligned or
    // shares memory with an input, a tensor in place or another output; the operator's. Then
    // nothing was written.
    // REQUIRES: workspace is aligned to 64 bytes and as large as workspace_bytes() says.
    Result<> run(std::span<void* const> memory, std::span<std::byte> workspace);

    const ops::OperatorSpec& spec() const { return *spec_; }

    // For the functions that prepare a call.

    // A request that lives as long as the call.
    template <typename T>
    T& keep() {
        auto made = std::make_shared<T>();
        kept_.push_back(made);
        return *made;
    }

    // Fills every member of `request` that the record binds to an attribute, an input or a tensor
    // in place. REQUIRES: the call was made of this record. Errors: kInvalidArgument, in the
    // operator's words, for a schedule_context or a segment of another dtype or shape.
    template <typename Request>
    Result<> fill(const ops::RecordOf<Request>& record, Request& request) {
        AFD_ASSERT(&record == spec_, "another operator's record");
        return fill(&request);
    }

    // The outputs that are bound and have a shape in `request`, which must stay where it is.
    template <typename Request>
    void returns(const ops::RecordOf<Request>& record, Request& request) {
        AFD_ASSERT(&record == spec_, "another operator's record");
        returns(&request);
    }
    // One that no member of the request is.
    void returns(std::string_view name, ops::TensorView& view);

    // What run() does: `reference` where the reference is asked for, empty if there is none.
    void ready(size_t workspace_bytes, Run fast, Reference reference);
    // The attributes and tensors that the workspace is made for, of which an error names the
    // largest where the workspace is most of what is too much. Literals.
    void workspace_grows_with(std::initializer_list<std::string_view> names) {
        workspace_sources_ = names;
    }
    // Multiplications and additions of the operator's matrices, for rates; 0 unless set.
    void set_operations(double operations) { operations_ = operations; }

    // Attributes: as given, else the record's default. REQUIRES: the record has one of this kind.
    int64_t integer(std::string_view name) const;
    std::vector<int64_t> integers(std::string_view name) const;

    const CallOptions& options() const { return options_; }
    ops::Parallel& parallel() const { return *options_.parallel; }

  private:
    OperatorCall() = default;
    const nlohmann::json& attribute(std::string_view name) const;
    ops::TensorView given(std::string_view name) const;
    Result<> take_tensors(std::vector<NamedTensor> tensors);
    Result<> fill(void* request);
    Result<> fill_tensor(const ops::TensorSpec& tensor, void* request);
    Result<> fill_windows(const ops::TensorSpec& tensor, void* request);
    void fill_attribute(const ops::AttributeSpec& attribute, void* request);
    void returns(void* request);
    Result<> check_outputs_given() const;
    // Whether memory for it is still to be had.
    bool is_wanted(const NamedTensor& output) const;
    Result<> check_memory() const;
    std::string largest_source() const;

    const ops::OperatorSpec* spec_ = nullptr;
    CallOptions options_;
    std::vector<NamedTensor> tensors_;
    std::vector<NamedTensor> in_place_;
    std::vector<NamedTensor> outputs_;
    std::vector<ops::TensorView*> targets_;  // Of each output.
    nlohmann::json attributes_;              // Every attribute, defaults included.
    size_t workspace_bytes_ = 0;
    std::vector<std::string_view> workspace_sources_;
    double operations_ = 0;
    Run fast_;
    Reference reference_;
    std::vector<std::shared_ptr<void>> kept_;
    // What spans of a request are views of.
    std::deque<std::vector<int64_t>> lists_;
    std::deque<std::vector<std::span<std::byte>>> windows_;
};

}  // namespace afd::calls
