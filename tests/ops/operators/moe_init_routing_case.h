// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random requests of moe_init_routing_v3 with memory of their own, and runs of either
// implementation, for the tests of the operator.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/operators/moe_init_routing.h"
#include "ops/reference/moe_init_routing.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops::test {

using InitRouting = Result<> (*)(const MoeInitRoutingV3Request&, unsigned num_threads);

inline Result<> run_fast(const MoeInitRoutingV3Request& request, unsigned num_threads) {
    const size_t top_k = request.expert_idx.rank == 2 ? request.expert_idx.shape[1] : 0;
    const size_t num_tokens = request.expert_idx.rank == 2 ? request.expert_idx.shape[0] : 0;
    const Workspace workspace(moe_init_routing_v3_workspace_bytes(
        num_tokens, top_k, static_cast<size_t>(std::max<int64_t>(request.expert_num, 0))));
    threads::ThreadPool parallel(num_threads);
    return moe_init_routing_v3(request, workspace.bytes(), parallel);
}

inline Result<> run_reference(const MoeInitRoutingV3Request& request, unsigned) {
    return reference::moe_init_routing_v3(request);
}

// Inputs whose rows depend on their index, and attributes; outputs are made for each run.
struct InitRoutingCase {
    Tensor x;
    Tensor expert_idx;
    Tensor scale;
    Tensor offset;
    std::vector<int64_t> range;
    MoeInitRoutingV3Request request;

    InitRoutingCase(
        DType dtype, size_t num_tokens, size_t top_k, size_t hidden, int64_t num_experts)
        : x(dtype, {num_tokens, hidden}), expert_idx(DType::kInt32, {num_tokens, top_k}) {
        for (size_t i = 0; i < num_tokens * hidden; ++i) {
            const float value =
                std::sin(static_cast<float>(i % 8191)) + static_cast<float>(i / hidden);
            if (dtype == DType::kInt8) {
                x.as<int8_t>()[i] = static_cast<int8_t>(i * 7 + i / hidden);
            } else {
                reference::set_element(dtype, x.as<void>(), i, value);
            }
        }
        std::mt19937 engine(static_cast<uint32_t>(num_tokens * 31 + top_k));
        for (size_t f = 0; f < num_tokens * top_k; ++f) {
            expert_idx.as<int32_t>()[f] = static_cast<int32_t>(
                engine() % static_cast<uint32_t>(std::max<int64_t>(num_experts, 1)));
        }
        request.expert_num = num_experts;
        request.expert_tokens_num_flag = true;
    }

    InitRoutingCase& with_scale(std::initializer_list<size_t> shape) {
        scale = Tensor(DType::kFp32, shape);
        for (size_t i = 0; i < scale.view.num_elements(); ++i) {
            scale.as<float>()[i] = 0.5f + static_cast<float>(i % 97) / 64.0f;
        }
        return *this;
    }
    InitRoutingCase& with_range(int64_t start, int64_t end) {
        range = {start, end};
        return *this;
    }
    InitRoutingCase& with_offset() {
        offset = Tensor(DType::kFp32, {1});
        *offset.as<float>() = -3.25f;
        return *this;
    }

    // The request without outputs.
    MoeInitRoutingV3Request inputs() {
        request.x = x.view;
        request.expert_idx = expert_idx.view;
        request.scale = scale.view;
        request.offset = offset.view;
        request.active_expert_range = range;
        return request;
    }
};

struct InitRoutingOutputs {
    Tensor expanded_x;
    Tensor expanded_row_idx;
    Tensor counts;
    Tensor expanded_scale;

    explicit InitRoutingOutputs(const MoeInitRoutingV3Request& shapes)
        : expanded_x(shapes.expanded_x),
          expanded_row_idx(shapes.expanded_row_idx),
          counts(shapes.expert_tokens_count_or_cumsum),
          expanded_scale(shapes.expanded_scale) {}

    void put_into(MoeInitRoutingV3Request& request) {
        request.expanded_x = expanded_x.view;
        request.expanded_row_idx = expanded_row_idx.view;
        request.expert_tokens_count_or_cumsum = counts.view;
        request.expanded_scale = expanded_scale.view;
    }
};

inline InitRoutingOutputs run(InitRoutingCase& c, InitRouting function, unsigned num_threads = 1) {
    MoeInitRoutingV3Request request = c.inputs();
    const Result<MoeInitRoutingV3Request> shapes = with_output_shapes(request);
    EXPECT_TRUE(shapes.ok()) << shapes.error().message;
    InitRoutingOutputs outputs(shapes.value());
    outputs.put_into(request);
    const Result<> result = function(request, num_threads);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return outputs;
}

}  // namespace afd::ops::test
