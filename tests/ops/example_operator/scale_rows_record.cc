// SPDX-License-Identifier: Apache-2.0

// The record of ScaleRows and the check of a request against it.

#include <string>

#include "ops/record/operator_check.h"
#include "tests/ops/example_operator/scale_rows.h"

namespace afd::ops::example {
namespace {

using Request = ScaleRowsRequest;

constexpr int64_t kModes[] = {0, 1};

constexpr AttributeSpec kAttributes[] = {
    {"mode", bind<&Request::mode>(), "0", kModes, 0, 0, "gain multiplies the factors; is added"},
    {"gain", bind<&Request::gain>(), "1.0", {}, 0, 0, "of every row"},
};

constexpr DTypeSet kTypes{DType::kBf16, DType::kFp32};

constexpr TensorSpec kTensors[] = {
    {"x", bind<&Request::x>(), TensorRole::kInput, kTypes, "[N, H]", "rows"},
    {"factors",
     bind<&Request::factors>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[N]",
     "one a row; not given: 1"},
    {"y", bind<&Request::y>(), TensorRole::kOutput, kTypes, "[N, H]", "scaled rows"},
};

constexpr std::string_view kRules[] = {"y has the dtype of x."};

}  // namespace

constinit const RecordOf<ScaleRowsRequest> kScaleRowsSpec = {{"scale_rows",
                                                              "every row times its own factor",
                                                              "y[n] = x[n] * (factors[n] * gain)",
                                                              "docs/adding/operator.md",
                                                              kAttributes,
                                                              kTensors,
                                                              kRules,
                                                              {}}};

Result<> check_scale_rows(const ScaleRowsRequest& r) {
    OperatorCheck check(kScaleRowsSpec, r);
    check.attributes();
    check.tensors();
    check.require(r.y.dtype == r.x.dtype,
                  "y has dtype {}; it must be that of x, {}",
                  with(name_of(r.y.dtype), name_of(r.x.dtype)));
    return check.finish();
}

}  // namespace afd::ops::example
