// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/grouped_matmul_swiglu.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ops/cpu/kernels.h"
#include "ops/linear/panel_loop.h"
#include "ops/linear/quantise.h"
#include "ops/operators/group_list.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

constexpr size_t kHalfPanel = kPanelColumns / 2;

// Room for a packed panel of either dtype.
size_t panel_elements(size_t depth) {
    return (depth + 1) / 2 * 2 * kPanelColumns;
}

// One group meets one panel: 16 gate columns and the 16 up columns that belong to them.
struct Panel {
    const GroupedMatmulSwigluRequest& request;
    GroupRows group;
    size_t first_column;
    size_t num_columns;  // 1 ... 16
    size_t depth;
    size_t intermediate;
    Bf16* h;  // [M, I]

    size_t weight_place(size_t k) const {
        return (group.expert * depth + k) * 2 * intermediate + first_column;
    }

    void swiglu(size_t row, const float* sums) const {
        cpu::kernels(request.numeric_class)
            .swiglu_row(
                sums, sums + kHalfPanel, num_columns, h + row * intermediate + first_column);
    }
};

// Lays the panel out as the class's tile kernel reads it (PackedLinear::panel).
void pack_bf16(const Panel& p, uint16_t* packed) {
    const auto* weight = static_cast<const Bf16*>(p.request.weight.data);
    const size_t step = bf16_interleave(p.request.numeric_class);
    // Missing columns and an odd last depth are multiplied as zeros.
    std::memset(packed, 0, panel_elements(p.depth) * sizeof(uint16_t));
    for (size_t k = 0; k < p.depth; ++k) {
        const Bf16* gate = weight + p.weight_place(k);
        const Bf16* up = gate + p.intermediate;
        uint16_t* out = packed + k / step * step * kPanelColumns + k % step;
        for (size_t c = 0; c < p.num_columns; ++c) {
            out[c * step] = gate[c].bits;
            out[(kHalfPanel + c) * step] = up[c].bits;
        }
    }
}

void multiply_bf16(const Panel& p, uint16_t* packed) {
    pack_bf16(p, packed);
    const auto* x = static_cast<const Bf16*>(p.request.x.data);
    alignas(64) float tile[cpu::kTileFloats];
    // Without depth there is nothing to multiply, and the sums are 0.
    if (p.depth == 0) std::fill(std::begin(tile), std::end(tile), 0.0f);
    const size_t end = p.group.first_row + p.group.count;
    const cpu::Kernels& kernels = cpu::kernels(p.request.numeric_class);
    // At most as many rows as a tile of the class has; a row's bits do not depend on its tile.
    for (size_t row = p.group.first_row; row < end; row += kernels.shape.rows) {
        const size_t num_rows = std::min(kernels.shape.rows, end - row);
        cpu::TileArguments arguments;
        arguments.x = x + row * p.depth;
        arguments.x_stride = p.depth;
        arguments.num_rows = num_rows;
        arguments.panel = packed;
        arguments.panel_elements = panel_elements(p.depth);
        arguments.depth = p.depth;
        arguments.out = tile;
        if (p.depth > 0) kernels.tile(arguments);
        for (size_t r = 0; r < num_rows; ++r) p.swiglu(row + r, tile + r * kPanelColumns);
    }
}

void multiply_int8(const Panel& p, int8_t* packed) {
    const auto* weight = static_cast<const int8_t*>(p.request.weight.data);
    const auto* x = static_cast<const int8_t*>(p.request.x.data);
    const auto* x_scale = static_cast<const float*>(p.request.x_scale.data);
    const float* gate_scale = static_cast<const float*>(p.request.weight_scale.data) +
                              p.group.expert * 2 * p.intermediate + p.first_column;
    const float* up_scale = gate_scale + p.intermediate;
    std::memset(packed, 0, p.depth * kPanelColumns);
    for (size_t k = 0; k < p.depth; ++k) {
        const int8_t* gate = weight + p.weight_place(k);
        std::memcpy(packed + k * kPanelColumns, gate, p.num_columns);
        std::memcpy(packed + k * kPanelColumns + kHalfPanel, gate + p.intermediate, p.num_columns);
    }
    const size_t end = p.group.first_row + p.group.count;
    for (size_t row = p.group.first_row; row < end; ++row) {
        int32_t sums[kPanelColumns] = {};
        for (size_t k = 0; k < p.depth; ++k) {
            const int32_t value = x[row * p.depth + k];
            const int8_t* w = packed + k * kPanelColumns;
            for (size_t j = 0; j < kPanelColumns; ++j) sums[j] += value * w[j];
        }
        float scaled[kPanelColumns] = {};
        for (size_t c = 0; c < p.num_columns; ++c) {
            scaled[c] = static_cast<float>(sums[c]) * x_scale[row] * gate_scale[c];
            scaled[kHalfPanel + c] =
                static_cast<float>(sums[kHalfPanel + c]) * x_scale[row] * up_scale[c];
        }
        p.swiglu(row, scaled);
    }
}

void quantise_output(const GroupedMatmulSwigluRequest& r,
                     size_t num_rows,
                     const Bf16* h,
                     Parallel& parallel) {
    quantise_rows({.x = make_tensor<const void>(h, DType::kBf16, {num_rows, r.output.shape[1]}),
                   .smooth = nullptr,
                   .q = static_cast<int8_t*>(r.output.data),
                   .scale = static_cast<float*>(r.output_scale.data)},
                  parallel);
}

}  // namespace

size_t grouped_matmul_swiglu_workspace_bytes(const GroupedMatmulSwigluRequest& r,
                                             unsigned num_threads) {
    return workspace_bytes_of<GroupRows>(r.group_list.shape[0]) +
           num_threads * workspace_bytes_of<uint16_t>(panel_elements(r.x.shape[1])) +
           (r.quant_mode == 1 ? workspace_bytes_of<Bf16>(r.output.num_elements()) : 0);
}

Result<> grouped_matmul_swiglu(const GroupedMatmulSwigluRequest& r,
                               std::span<std::byte> workspace,
                               Parallel& parallel) {
    AFD_TRY(check_grouped_matmul_swiglu(r));
    AFD_ASSERT(supported(r.numeric_class),
               "numeric class %s needs another processor",
               std::string(name_of(r.numeric_class)).c_str());
    const size_t depth = r.x.shape[1];
    const size_t intermediate = r.output.shape[1];
    WorkspaceCursor cursor(workspace);
    auto* groups = cursor.take<GroupRows>(r.group_list.shape[0]);
    size_t num_groups = 0;
    size_t num_rows = 0;
    GroupList(r.group_list_type, r.group_list).for_each([&](const GroupRows& group) {
        groups[num_groups++] = group;
        num_rows += group.count;
    });
    auto* packed = cursor.take<std::byte>(parallel.num_threads() *
                                          workspace_bytes_of<uint16_t>(panel_elements(depth)));
    Bf16* h = r.quant_mode == 1 ? cursor.take<Bf16>(r.output.num_elements())
                                : static_cast<Bf16*>(r.output.data);

    const size_t num_panels = div_up(intermediate, kHalfPanel);
    const auto body = [&](size_t task, unsigned thread) {
        const size_t first = task % num_panels * kHalfPanel;
        const Panel panel{r,
                          groups[task / num_panels],
                          first,
                          std::min(kHalfPanel, intermediate - first),
                          depth,
                          intermediate,
                          h};
        std::byte* own = packed + thread * workspace_bytes_of<uint16_t>(panel_elements(depth));
        if (r.x.dtype == DType::kInt8) {
            multiply_int8(panel, reinterpret_cast<int8_t*>(own));
        } else {
            multiply_bf16(panel, reinterpret_cast<uint16_t*>(own));
        }
    };
    run_where_it_pays(parallel, num_groups * num_panels, num_rows * depth * intermediate, body);
    // Behind all panels: a row's scale needs the whole row.
    if (r.quant_mode == 1) quantise_output(r, num_rows, h, parallel);
    return {};
}

}  // namespace afd::ops
