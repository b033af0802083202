// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/grouped_ffn.h"

#include <algorithm>
#include <string>

#include "ops/cpu/kernels.h"
#include "ops/experts/output_gate.h"
#include "ops/linear/panel_finish.h"
#include "ops/linear/panel_loop.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/round_up.h"
#include "ops/tensor/row_tasks.h"
#include "ops/tensor/spread_rows.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

// A group's rows, and where its panels lie in those of all groups.
struct Work {
    const PackedExpert* expert;
    size_t first_row;    // Counted without gaps.
    size_t first_place;  // In x and y.
    size_t num_rows;
    size_t first_panel;
};

// With more rows of one expert, x is copied.
constexpr size_t kRowsInPlace = 4;

template <typename... Values>
Error refuse_group(size_t index, Text<Values...> what, const With<Values...>& values) {
    return invalid_argument("groups[{}] {}", with(index, fmt::vformat(what, values)));
}

size_t num_rows_of(const GroupedFfnRequest& request) {
    return request.x_int8.given() ? request.x_int8.values.num_rows : request.x.num_rows;
}

Result<size_t> check_groups(const GroupedFfnRequest& request) {
    const ExpertTable& experts = *request.experts;
    int64_t previous = -1;
    size_t num_rows = 0;
    for (size_t i = 0; i < request.groups.size(); ++i) {
        const auto [key, count] = request.groups[i];
        if (key < 0 || static_cast<size_t>(key) >= experts.experts().size() ||
            experts.at(static_cast<size_t>(key)).empty()) {
            return refuse_group(i, "has key {}, which has no expert here", with(key));
        }
        if (key <= previous) {
            return refuse_group(i, "has key {} after {}; keys must ascend", with(key, previous));
        }
        const size_t first =
            request.first_rows == nullptr ? num_rows : static_cast<size_t>(request.first_rows[i]);
        const size_t left = num_rows_of(request) - std::min(first, num_rows_of(request));
        if (count < 0 || static_cast<size_t>(count) > left) {
            return refuse_group(i, "has count {}; only {} rows of x are left", with(count, left));
        }
        const bool is_int8 =
            experts.at(static_cast<size_t>(key)).gate_up.format() == WeightFormat::kInt8;
        if (request.x_int8.given() && !is_int8) {
            return refuse_group(
                i,
                "has key {}, whose weights are not int8; its rows must not be either",
                with(key));
        }
        previous = key;
        num_rows += static_cast<size_t>(count);
    }
    return num_rows;
}

struct Plan {
    size_t num_panels = 0;
    size_t num_products = 0;
    size_t panels_per_task = 1;
};

// Puts the panels of one of the two matrices of all groups in a row.
Plan plan(const GroupedFfnRequest& request, PackedLinear PackedExpert::*matrix, Work* work) {
    Plan total;
    size_t first_row = 0;
    size_t num_weighed = 0;
    for (size_t i = 0; i < request.groups.size(); ++i) {
        const PackedExpert& expert =
            request.experts->at(static_cast<size_t>(request.groups[i].key));
        const auto num_rows = static_cast<size_t>(request.groups[i].count);
        const PackedLinear& weight = expert.*matrix;
        const size_t first_place =
            request.first_rows == nullptr ? first_row : static_cast<size_t>(request.first_rows[i]);
        work[i] = {&expert, first_row, first_place, num_rows, total.num_panels};
        if (num_rows == 0) continue;
        first_row += num_rows;
        const size_t products = weight.num_outputs() * weight.depth();
        total.num_panels += weight.num_panels();
        total.num_products += num_rows * products;
        num_weighed += std::max(num_rows, kMemoryBoundRows) * products;
    }
    total.panels_per_task = div_up(kTaskProducts * total.num_panels, num_weighed);
    return total;
}

// Calls body(work, first_panel, last_panel) for the panels of every group. They are cut as one
// line, not expert by expert: a thread that goes on into the next expert does not begin a stream
// anew.
//
// Fetching likely experts before the router has chosen was measured and not built: a paced fetch of
// 12 MB to the third-level cache makes the read of 24 MB after it take 0.45 instead of 0.78 ms, but
// it can help only where attention runs in the same process, a tenth at 32 streams at most, and a
// quarter of the lines would be fetched for nobody.
// Rows divided among the threads, 64 to 96 at a time, instead of panels: 0.98 to 1.04 of the speed
// with experts of 2048x1408, 0.9 to 1.07 with 7168x2048, different from run to run; not kept. Both
// on two cores of a Zen 4.
template <typename Body>
void run_plan(std::span<const Work> work,
              const Plan& total,
              PackedLinear PackedExpert::*matrix,
              Parallel& parallel,
              const Body& body) {
    const auto run = [&](size_t first, size_t last) {
        auto item =
            std::upper_bound(work.begin(), work.end(), first, [](size_t panel, const Work& group) {
                return panel < group.first_panel;
            });
        for (--item; first < last; ++item) {
            if (item->num_rows == 0) continue;
            const size_t num_panels = (item->expert->*matrix).num_panels();
            const size_t end = std::min(last, item->first_panel + num_panels);
            body(*item, first - item->first_panel, end - item->first_panel);
            first = end;
        }
    };
    if (total.num_products < 2 * kTaskProducts) return run(0, total.num_panels);
    run_shares(parallel, total.num_panels, total.panels_per_task, run);
}

// Rows and where a group begins in them. Prepared rows have no gaps; those of the request may.
struct Input {
    LinearInput rows;
    size_t Work::*first = &Work::first_row;
    size_t Work::*first_int8 = &Work::first_row;

    // The rows of one group, as wide as its weight is deep.
    LinearInput of(const Work& work, const PackedLinear& weight) const {
        LinearInput part(rows.rows.slice(work.*first, work.num_rows).columns(0, weight.depth()));
        if (weight.format() == WeightFormat::kInt8) {
            part.int8 = rows.int8.slice(work.*first_int8, work.num_rows);
            part.int8.values = part.int8.values.columns(0, weight.depth());
        } else if (rows.w4a8.given() && is_int4(weight.format())) {
            part.w4a8 = rows.w4a8.slice(work.first_row, work.num_rows);
            part.w4a8.values = part.w4a8.values.columns(0, weight.depth());
        }
        return part;
    }
};

// Rows on their way into a product: copied apart (ops/tensor/spread_rows.h), or quantised.
struct InputScratch {
    Rows<Bf16> rows;
    Rows<int8_t> values;  // These three only where rows are quantised,
    float* scale;
    int32_t* sum;
    Rows<int8_t> arranged;  // and this one where they are arranged for int4 experts.
};

// Of an arranged row, in bytes. Groups of 32 have the most sums.
size_t arranged_stride(size_t depth) {
    return spread_stride<int8_t>(w4a8_row_bytes(depth, 32));
}

InputScratch take_input_scratch(WorkspaceCursor& cursor,
                                const ExpertTable& experts,
                                size_t num_rows) {
    const size_t stride = spread_stride<Bf16>(experts.hidden());
    InputScratch scratch{};
    scratch.rows = {cursor.take<Bf16>(num_rows * stride), num_rows, experts.hidden(), stride};
    if (!experts.has_int8_rows()) return scratch;
    const size_t depth = std::max(experts.hidden(), experts.intermediate_max());
    const size_t int8_stride = spread_stride<int8_t>(depth);
    scratch.values = {cursor.take<int8_t>(num_rows * int8_stride), num_rows, depth, int8_stride};
    scratch.scale = cursor.take<float>(num_rows);
    scratch.sum = cursor.take<int32_t>(num_rows);
    if (experts.has_w4a8_rows()) {
        const size_t arranged = arranged_stride(depth);
        scratch.arranged = {cursor.take<int8_t>(num_rows * arranged), num_rows, depth, arranged};
    }
    return scratch;
}

// Calls prepare(row, group) for every row, counted without gaps.
template <typename Prepare>
void for_each_row(std::span<const Work> groups,
                  size_t num_cols,
                  Parallel& parallel,
                  const Prepare& prepare) {
    const size_t num_rows = groups.back().first_row + groups.back().num_rows;
    for_rows(parallel, num_rows, num_cols, [&](size_t first, size_t last, unsigned) {
        auto group =
            std::upper_bound(groups.begin(), groups.end(), first, [](size_t row, const Work& work) {
                return row < work.first_row;
            });
        --group;
        for (size_t row = first; row < last; ++row) {
            while (row >= group->first_row + group->num_rows) ++group;
            prepare(row, *group);
        }
    });
}

// Quantises the rows whose weights take them so, as many elements of each as the weight is deep,
// and copies the others if told to.
void prepare_rows(const ExpertTable& experts,
                  Input& input,
                  std::span<const Work> groups,
                  PackedLinear PackedExpert::*matrix,
                  bool copy,
                  const InputScratch& scratch,
                  Parallel& parallel) {
    const Rows<const Bf16> x = input.rows.rows;
    const cpu::Kernels& kernels = cpu::best_kernels();
    const bool is_first = matrix == &PackedExpert::gate_up;
    for_each_row(groups, x.num_cols, parallel, [&](size_t row, const Work& group) {
        const PackedLinear& weight = group.expert->*matrix;
        const Bf16* source = x.row(group.*input.first + row - group.first_row);
        if (!experts.takes_int8_rows(weight)) {
            if (copy) std::copy_n(source, weight.depth(), scratch.rows.row(row));
            return;
        }
        int8_t* values = scratch.values.row(row);
        const bool is_smooth = is_first && !group.expert->smooth.empty();
        const float* smooth = is_smooth ? group.expert->smooth.data() : nullptr;
        scratch.scale[row] = quantise_row(DType::kBf16, source, smooth, weight.depth(), values);
        if (experts.takes_w4a8_rows(weight)) {
            kernels.arrange_w4a8({.q = values,
                                  .depth = weight.depth(),
                                  .group_size = int4_group_size(weight.format()),
                                  .row = scratch.arranged.row(row)});
        } else {
            scratch.sum[row] = kernels.sum_int8(values, weight.depth());
        }
    });
    if (copy) {
        input.rows.rows = scratch.rows;
        input.first = &Work::first_row;
    }
    if (scratch.scale != nullptr) {
        input.rows.int8 = {scratch.values, scratch.scale, scratch.sum};
    }
    if (scratch.arranged.data != nullptr) input.rows.w4a8 = {scratch.arranged, scratch.scale};
}

// The request's rows, prepared where their weights want it.
Input input_of(const GroupedFfnRequest& request,
               std::span<const Work> work,
               const InputScratch& scratch,
               Parallel& parallel) {
    if (request.x_int8.given()) {
        Input input{request.x_int8};
        input.first = input.first_int8 = &Work::first_place;
        return input;
    }
    Input input{request.x};
    input.first = &Work::first_place;
    const bool copy = std::any_of(
        work.begin(), work.end(), [](const Work& group) { return group.num_rows > kRowsInPlace; });
    const bool quantises = request.experts->has_int8_rows();
    if (copy || quantises) {
        const StageTimer timer(request.profile, quantises ? MoeStage::kQuantise : MoeStage::kGemm1);
        prepare_rows(
            *request.experts, input, work, &PackedExpert::gate_up, copy, scratch, parallel);
    }
    return input;
}

// h as the input of the second product.
Input input_of_down(const GroupedFfnRequest& request,
                    Rows<const Bf16> h,
                    std::span<const Work> work,
                    const InputScratch& scratch,
                    Parallel& parallel) {
    Input input{h};
    if (request.experts->has_int8_rows()) {
        const StageTimer timer(request.profile, MoeStage::kQuantise);
        prepare_rows(*request.experts, input, work, &PackedExpert::down, false, scratch, parallel);
    }
    return input;
}

// Calls finish(row, panel, sums) of for_each_panel_row with the bias added to the sums, if any.
template <typename Finish>
void for_each_biased_row(const LinearInput& x,
                         const PackedLinear& weight,
                         const std::vector<float>& bias,
                         size_t first_panel,
                         size_t last_panel,
                         const Finish& finish) {
    if (bias.empty()) return for_each_panel_row(x, weight, first_panel, last_panel, finish);
    const auto add = [&](size_t row, size_t panel, const float* sums) {
        alignas(64) float biased[kPanelColumns];
        for (size_t c = 0; c < kPanelColumns; ++c) {
            biased[c] = sums[c] + bias[panel * kPanelColumns + c];
        }
        finish(row, panel, static_cast<const float*>(biased));
    };
    for_each_panel_row(x, weight, first_panel, last_panel, add);
}

void gate_up_part(const Work& work,
                  ExpertActivation activation,
                  size_t first_panel,
                  size_t last_panel,
                  const Input& x,
                  Rows<Bf16> h) {
    const PackedLinear& weight = work.expert->gate_up;
    const Rows<Bf16> rows =
        h.slice(work.first_row, work.num_rows).columns(0, work.expert->intermediate());
    for_each_biased_row(x.of(work, weight),
                        weight,
                        work.expert->gate_up_bias,
                        first_panel,
                        last_panel,
                        ActivatePanels(weight, activation, rows));
}

void down_part(const GroupedFfnRequest& request,
               const Work& work,
               size_t first_panel,
               size_t last_panel,
               const Input& h) {
    const PackedLinear& weight = work.expert->down;
    for_each_biased_row(h.of(work, weight),
                        weight,
                        work.expert->down_bias,
                        first_panel,
                        last_panel,
                        RoundPanels(weight, request.y, work.first_place, request.row_index));
}

// The factor of every row whose expert has an output gate, counted without gaps.
void compute_gates(const ExpertTable& experts,
                   std::span<const Work> groups,
                   const Input& input,
                   float* factors,
                   Parallel& parallel) {
    const size_t hidden = experts.hidden();
    for_each_row(groups, hidden, parallel, [&](size_t row, const Work& group) {
        const PackedExpert& expert = *group.expert;
        if (expert.output_gate.empty()) return;
        const float* gate = expert.output_gate.data();
        const size_t in_group = row - group.first_row;
        if (!experts.takes_int8_rows(expert.gate_up)) {
            const Bf16* x = input.rows.rows.row(group.*input.first + in_group);
            factors[row] = output_gate(x, gate, hidden);
            return;
        }
        // Of what was quantised also where the bf16 row is there: it need not be.
        const size_t at = group.*input.first_int8 + in_group;
        factors[row] = output_gate(input.rows.int8.values.row(at),
                                   input.rows.int8.row_scale[at],
                                   expert.smooth.empty() ? nullptr : expert.smooth.data(),
                                   gate,
                                   hidden);
    });
}

void apply_gates(const GroupedFfnRequest& request,
                 std::span<const Work> groups,
                 const float* factors,
                 Parallel& parallel) {
    for_each_row(groups, request.y.num_cols, parallel, [&](size_t row, const Work& group) {
        if (group.expert->output_gate.empty()) return;
        size_t place = group.first_place + row - group.first_row;
        if (request.row_index != nullptr) {
            place = static_cast<size_t>(request.row_index[place]);
        }
        multiply_row(factors[row], request.y.num_cols, request.y.row(place));
    });
}

}  // namespace

size_t grouped_ffn_workspace_bytes(const ExpertTable& experts,
                                   size_t num_rows_max,
                                   size_t num_groups_max) {
    const size_t depth_max = std::max(experts.hidden(), experts.intermediate_max());
    size_t bytes =
        workspace_bytes_of<Bf16>(num_rows_max * spread_stride<Bf16>(experts.intermediate_max())) +
        workspace_bytes_of<Work>(num_groups_max) + workspace_bytes_of<float>(num_rows_max) +
        workspace_bytes_of<Bf16>(num_rows_max * spread_stride<Bf16>(experts.hidden()));
    if (experts.has_int8_rows()) {
        bytes += workspace_bytes_of<int8_t>(num_rows_max * spread_stride<int8_t>(depth_max)) +
                 workspace_bytes_of<float>(num_rows_max) +
                 workspace_bytes_of<int32_t>(num_rows_max);
    }
    if (experts.has_w4a8_rows()) {
        bytes += workspace_bytes_of<int8_t>(num_rows_max * arranged_stride(depth_max));
    }
    return bytes;
}

Result<> grouped_ffn(const GroupedFfnRequest& request,
                     std::span<std::byte> workspace,
                     Parallel& parallel) {
    size_t num_rows = 0;
    AFD_ASSIGN(num_rows, check_groups(request));
    if (num_rows == 0) return {};
    const ExpertTable& experts = *request.experts;
    if (FirstUse* first_use = experts.first_use()) first_use->before(request.groups, parallel);
    const size_t x_cols =
        request.x_int8.given() ? request.x_int8.values.num_cols : request.x.num_cols;
    AFD_ASSERT(x_cols == experts.hidden() && request.y.num_cols == experts.hidden(),
               "x of %zu and y of %zu columns, hidden %zu",
               x_cols,
               request.y.num_cols,
               experts.hidden());
    WorkspaceCursor cursor(workspace);
    const size_t h_stride = spread_stride<Bf16>(experts.intermediate_max());
    const Rows<Bf16> h{
        cursor.take<Bf16>(num_rows * h_stride), num_rows, experts.intermediate_max(), h_stride};
    const std::span work(cursor.take<Work>(request.groups.size()), request.groups.size());
    const std::span factors(cursor.take<float>(num_rows), num_rows);
    const InputScratch scratch = take_input_scratch(cursor, experts, num_rows);

    Plan total = plan(request, &PackedExpert::gate_up, work.data());
    const Input input = input_of(request, work, scratch, parallel);
    if (experts.has_output_gate()) {
        compute_gates(experts, work, input, factors.data(), parallel);
    }
    {
        const StageTimer timer(request.profile, MoeStage::kGemm1);
        const auto part = [&](const Work& item, size_t first, size_t last) {
            gate_up_part(item, experts.activation(), first, last, input, h);
        };
        run_plan(work, total, &PackedExpert::gate_up, parallel, part);
    }
    total = plan(request, &PackedExpert::down, work.data());
    const Input middle = input_of_down(request, h, work, scratch, parallel);
    const StageTimer timer(request.profile, MoeStage::kGemm2);
    const auto part = [&](const Work& item, size_t first, size_t last) {
        down_part(request, item, first, last, middle);
    };
    run_plan(work, total, &PackedExpert::down, parallel, part);
    if (experts.has_output_gate()) apply_gates(request, work, factors.data(), parallel);
    return {};
}

}  // namespace afd::ops
