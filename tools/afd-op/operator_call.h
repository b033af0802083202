// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorCall: one call of an operator by name, between files and the operator's request.
//
// Inputs and attributes are matched with the operator's record when the call is made: a name that
// the record does not have, or an attribute of another kind, is refused there. What is inside its
// range, and shapes and dtypes, is the operator's own judgement. Which member of the request a name
// is, the record says, too:
//
//   fill()            attributes, inputs and tensors in place, into the request
//   make_outputs()    memory for every output for which the request then has a shape

#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "proto/status.h"
#include "tools/afd-op/tensor_file.h"

namespace afd::tools {

// The extent of an axis of a tensor that its operator has not judged yet: 0 if there is no such
// axis.
inline size_t extent(const ops::ConstTensorView& view, size_t axis) {
    return axis < view.rank ? view.shape[axis] : 0;
}

// The shape of an output that make_outputs() makes.
inline ops::TensorView shape_of(ops::DType dtype, std::initializer_list<size_t> shape) {
    return ops::make_tensor<void>(nullptr, dtype, shape);
}

class OperatorCall {
  public:
    // `attributes`: a JSON object. Errors: kInvalidArgument, naming what is unknown and what there
    // is, or what is missing.
    static Result<OperatorCall> make(const ops::OperatorSpec& spec,
                                     TensorMap inputs,
                                     const nlohmann::json& attributes,
                                     bool is_reference,
                                     ops::Parallel& parallel);

    // Fills every member of `request` that the record binds to an attribute, an input or a tensor
    // in place; the request's views and spans last as long as the call.
    // REQUIRES: the call was made of this record. Errors: kInvalidArgument, the operator's words
    // for a schedule_context that is none.
    template <typename Request>
    Result<> fill(const ops::RecordOf<Request>& record, Request& request) {
        AFD_ASSERT(&record == spec_, "another operator's record");
        return fill(&request);
    }

    // Makes the outputs that are bound and whose views in `request` have a shape and no data yet.
    // An output without a shape is off: it is not among the call's outputs.
    template <typename Request>
    void make_outputs(const ops::RecordOf<Request>& record, Request& request) {
        AFD_ASSERT(&record == spec_, "another operator's record");
        make_outputs(&request);
    }

    // Errors: kInvalidArgument if the reference is asked for: for operators that have none.
    Result<> refuse_reference() const;

    // Attributes: as given, else the record's default. REQUIRES: the record has one of this kind.
    int64_t integer(std::string_view name) const;
    std::vector<int64_t> integers(std::string_view name) const;

    // Not given (rank 0) if the file has none.
    ops::ConstTensorView input(std::string_view name) const;

    // Made, zero-filled; in_place() as a copy of the input, and not given without one.
    ops::TensorView output(std::string_view name, ops::DType dtype, std::vector<size_t> shape);
    ops::TensorView in_place(std::string_view name);

    // Whether the fast path or the reference is asked for.
    bool is_reference() const { return is_reference_; }
    ops::Parallel& parallel() const { return *parallel_; }
    std::span<std::byte> workspace(size_t bytes);

    const TensorMap& outputs() const { return outputs_; }

  private:
    OperatorCall() = default;
    const nlohmann::json& attribute(std::string_view name) const;
    Result<> fill(void* request);
    Result<> fill_tensor(const ops::TensorSpec& tensor, void* request);
    void fill_attribute(const ops::AttributeSpec& attribute, void* request);
    void make_outputs(void* request);

    const ops::OperatorSpec* spec_ = nullptr;
    TensorMap inputs_;
    TensorMap outputs_;
    nlohmann::json attributes_;  // Every attribute, defaults included.
    bool is_reference_ = false;
    ops::Parallel* parallel_ = nullptr;
    ops::Workspace workspace_;
    // What spans of a request are views of.
    std::deque<std::vector<int64_t>> lists_;
    std::deque<std::vector<std::span<std::byte>>> windows_;
};

}  // namespace afd::tools
