// SPDX-License-Identifier: Apache-2.0
//
// The same call from C++, on the operator's own request: the headers under ops/ are installed, too.
#include <cstdio>
#include <memory>
#include <vector>

#include "ops/operators/moe_init_routing.h"
#include "ops/tensor/workspace.h"

namespace ops = afd::ops;

int main() {
    const float x[3][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
    const int32_t ids[3][2] = {{3, 0}, {0, 1}, {1, 3}};
    float rows[6][4] = {};
    int32_t index[6] = {};
    const ops::MoeInitRoutingV3Request request{
        .expert_num = 4,
        .x = ops::make_tensor<const void>(x, ops::DType::kFp32, {3, 4}),
        .expert_idx = ops::make_tensor<const void>(ids, ops::DType::kInt32, {3, 2}),
        .expanded_x = ops::make_tensor<void>(rows, ops::DType::kFp32, {6, 4}),
        .expanded_row_idx = ops::make_tensor<void>(index, ops::DType::kInt32, {6})};
    std::vector<std::byte> memory(ops::moe_init_routing_v3_workspace_bytes(3, 2, 4) + 64);
    ops::SerialParallel serial;
    void* begin = memory.data();
    size_t size = memory.size();
    auto* aligned = static_cast<std::byte*>(std::align(64, size - 64, begin, size));
    const afd::Result<> done = ops::moe_init_routing_v3(request, {aligned, size}, serial);
    if (!done.ok()) {
        std::fprintf(stderr, "%s\n", done.error().message.c_str());
        return 1;
    }
    std::printf("expanded_x");
    for (const auto& row : rows) std::printf(" %g", static_cast<double>(row[0]));
    std::printf("\nexpanded_row_idx");
    for (const int32_t place : index) std::printf(" %d", place);
    std::printf("\n");
    return 0;
}
