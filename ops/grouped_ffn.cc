// SPDX-License-Identifier: Apache-2.0

#include "ops/grouped_ffn.h"

#include <algorithm>
#include <string>

#include "ops/cpu/kernels.h"
#include "ops/panel_loop.h"
#include "ops/quantise.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// A group's rows and where its tasks begin.
struct Work {
    const PackedExpert* expert;
    size_t first_row;
    size_t num_rows;
    size_t first_task;
    size_t num_tasks;
};

// Elements that one task quantises, at least: some microseconds of work.
constexpr size_t kQuantisedPerTask = size_t{1} << 16;

Error refuse_group(size_t index, const std::string& what) {
    return Error{Code::kInvalidArgument, "groups[" + std::to_string(index) + "] " + what};
}

Result<size_t> check_groups(const GroupedFfnRequest& request) {
    const ExpertTable& experts = *request.experts;
    int64_t previous = -1;
    size_t num_rows = 0;
    for (size_t i = 0; i < request.groups.size(); ++i) {
        const auto [key, count] = request.groups[i];
        if (key < 0 || static_cast<size_t>(key) >= experts.num_keys() ||
            experts.at(static_cast<size_t>(key)).empty()) {
            return refuse_group(i, "has key " + std::to_string(key) + ", which has no expert here");
        }
        if (key <= previous) {
            return refuse_group(i,
                                "has key " + std::to_string(key) + " after " +
                                    std::to_string(previous) + "; keys must ascend");
        }
        if (count < 0 || static_cast<size_t>(count) > request.x.num_rows - num_rows) {
            return refuse_group(i,
                                "has count " + std::to_string(count) + "; only " +
                                    std::to_string(request.x.num_rows - num_rows) +
                                    " rows of x are left");
        }
        previous = key;
        num_rows += static_cast<size_t>(count);
    }
    return num_rows;
}

struct Plan {
    size_t num_tasks = 0;
    size_t num_products = 0;
};

// Cuts the groups into tasks over the panels of one of the two matrices.
Plan plan(const GroupedFfnRequest& request,
          PackedLinear PackedExpert::*matrix,
          unsigned num_threads,
          Work* work) {
    Plan total;
    size_t first_row = 0;
    for (size_t i = 0; i < request.groups.size(); ++i) {
        const PackedExpert& expert =
            request.experts->at(static_cast<size_t>(request.groups[i].key));
        const auto num_rows = static_cast<size_t>(request.groups[i].count);
        const PackedLinear& weight = expert.*matrix;
        const size_t num_tasks =
            num_panel_tasks(num_rows, weight.num_panels(), weight.depth(), num_threads);
        work[i] = {&expert, first_row, num_rows, total.num_tasks, num_tasks};
        first_row += num_rows;
        total.num_tasks += num_tasks;
        total.num_products += num_rows * weight.num_outputs() * weight.depth();
    }
    return total;
}

// Calls body(work, first_panel, last_panel) for every task of the plan.
template <typename Body>
void run_plan(std::span<const Work> work,
              const Plan& total,
              PackedLinear PackedExpert::*matrix,
              Parallel& parallel,
              const Body& body) {
    run_where_it_pays(parallel, total.num_tasks, total.num_products, [&](size_t task, unsigned) {
        const auto after =
            std::upper_bound(work.begin(), work.end(), task, [](size_t value, const Work& item) {
                return value < item.first_task;
            });
        const Work& item = *(after - 1);
        const size_t num_panels = (item.expert->*matrix).num_panels();
        const size_t part = task - item.first_task;
        body(item, part * num_panels / item.num_tasks, (part + 1) * num_panels / item.num_tasks);
    });
}

// The rows of one group, as wide as its weight is deep.
LinearInput rows_of(const Work& work, const LinearInput& all, const PackedLinear& weight) {
    LinearInput rows(all.rows.slice(work.first_row, work.num_rows).columns(0, weight.depth()));
    if (weight.format() == WeightFormat::kInt8) {
        rows.int8 = all.int8.slice(work.first_row, work.num_rows);
        rows.int8.values = rows.int8.values.columns(0, weight.depth());
    }
    return rows;
}

// Quantises the rows whose weights are int8, as many elements of each as the weight is deep.
LinearInput quantise_groups(Rows<const Bf16> x,
                            std::span<const Work> groups,
                            PackedLinear PackedExpert::*matrix,
                            std::span<std::byte> scratch,
                            Parallel& parallel) {
    WorkspaceCursor cursor(scratch);
    const Rows<int8_t> values =
        make_rows(cursor.take<int8_t>(x.num_rows * x.num_cols), x.num_rows, x.num_cols);
    auto* scale = cursor.take<float>(x.num_rows);
    const size_t rows_per_task = kQuantisedPerTask / x.num_cols + 1;
    const auto quantise = [&](size_t task, unsigned) {
        const size_t last = std::min(x.num_rows, (task + 1) * rows_per_task);
        auto group = std::upper_bound(groups.begin(),
                                      groups.end(),
                                      task * rows_per_task,
                                      [](size_t row, const Work& w) { return row < w.first_row; }) -
                     1;
        for (size_t row = task * rows_per_task; row < last; ++row) {
            while (row >= group->first_row + group->num_rows) ++group;
            const PackedLinear& weight = group->expert->*matrix;
            if (weight.format() != WeightFormat::kInt8) continue;
            scale[row] =
                quantise_row(DType::kBf16, x.row(row), nullptr, weight.depth(), values.row(row));
        }
    };
    const size_t num_tasks = div_up(x.num_rows, rows_per_task);
    if (num_tasks == 1) {
        quantise(0, 0);
    } else {
        parallel.run(num_tasks, quantise);
    }
    LinearInput input(x);
    input.int8 = {values, scale};
    return input;
}

void gate_up_part(
    const Work& work, size_t first_panel, size_t last_panel, const LinearInput& x, Rows<Bf16> h) {
    constexpr size_t kHalf = kPanelColumns / 2;
    const PackedLinear& weight = work.expert->gate_up;
    const size_t intermediate = work.expert->intermediate();
    const auto swiglu_row = cpu::kernels(weight.numeric_class()).swiglu_row;
    for_each_panel_row(rows_of(work, x, weight),
                       weight,
                       first_panel,
                       last_panel,
                       [&](size_t row, size_t panel, const float* sums) {
                           const size_t column = panel * kHalf;
                           swiglu_row(sums,
                                      sums + kHalf,
                                      std::min(kHalf, intermediate - column),
                                      h.row(work.first_row + row) + column);
                       });
}

void down_part(const GroupedFfnRequest& request,
               const Work& work,
               size_t first_panel,
               size_t last_panel,
               const LinearInput& h) {
    const PackedLinear& weight = work.expert->down;
    const auto round_row = cpu::kernels(weight.numeric_class()).round_row;
    const size_t hidden = weight.num_outputs();
    for_each_panel_row(
        rows_of(work, h, weight),
        weight,
        first_panel,
        last_panel,
        [&](size_t row, size_t panel, const float* sums) {
            const size_t from = work.first_row + row;
            const size_t to =
                request.row_index == nullptr ? from : static_cast<size_t>(request.row_index[from]);
            const size_t column = panel * kPanelColumns;
            round_row(sums, std::min(kPanelColumns, hidden - column), request.y.row(to) + column);
        });
}

PackedExpert checked(PackedExpert expert) {
    AFD_ASSERT(
        expert.down.depth() == expert.intermediate() && expert.hidden() == expert.gate_up.depth(),
        "gate and up [%zu, %zu], down [%zu, %zu]",
        expert.intermediate(),
        expert.gate_up.depth(),
        expert.hidden(),
        expert.down.depth());
    return expert;
}

}  // namespace

PackedExpert pack_expert(Rows<const Bf16> gate,
                         Rows<const Bf16> up,
                         Rows<const Bf16> down,
                         NumericClass numeric_class) {
    return checked({PackedLinear::pack_gate_up(gate, up, numeric_class),
                    PackedLinear::pack(down, numeric_class)});
}

PackedExpert pack_expert(const Int8Weight& gate,
                         const Int8Weight& up,
                         const Int8Weight& down,
                         NumericClass numeric_class) {
    return checked({PackedLinear::pack_gate_up(gate, up, numeric_class),
                    PackedLinear::pack(down, numeric_class)});
}

PackedExpert pack_expert(const Int4Weight& gate,
                         const Int4Weight& up,
                         const Int4Weight& down,
                         NumericClass numeric_class) {
    return checked({PackedLinear::pack_gate_up(gate, up, numeric_class),
                    PackedLinear::pack(down, numeric_class)});
}

void ExpertTable::set(size_t key, PackedExpert expert) {
    AFD_ASSERT(key < experts_.size(), "key %zu of %zu", key, experts_.size());
    AFD_ASSERT(expert.hidden() == hidden_ && expert.gate_up.depth() == hidden_,
               "expert of hidden %zu in a table of %zu",
               expert.hidden(),
               hidden_);
    AFD_ASSERT(expert.down.depth() == expert.intermediate(),
               "intermediate size %zu of gate and up, %zu of down",
               expert.intermediate(),
               expert.down.depth());
    intermediate_max_ = std::max(intermediate_max_, expert.intermediate());
    has_int8_ = has_int8_ || expert.gate_up.format() == WeightFormat::kInt8 ||
                expert.down.format() == WeightFormat::kInt8;
    experts_[key] = std::move(expert);
}

size_t grouped_ffn_workspace_bytes(const ExpertTable& experts,
                                   size_t num_rows_max,
                                   size_t num_groups_max) {
    const size_t depth_max = std::max(experts.hidden(), experts.intermediate_max());
    return workspace_bytes_of<Bf16>(num_rows_max * experts.intermediate_max()) +
           workspace_bytes_of<Work>(num_groups_max) +
           (experts.has_int8() ? quantised_input_bytes(num_rows_max, depth_max) : 0);
}

Result<void> grouped_ffn(const GroupedFfnRequest& request,
                         std::span<std::byte> workspace,
                         Parallel& parallel) {
    size_t num_rows = 0;
    AFD_ASSIGN(num_rows, check_groups(request));
    if (num_rows == 0) return {};
    const ExpertTable& experts = *request.experts;
    AFD_ASSERT(request.x.num_cols == experts.hidden() && request.y.num_cols == experts.hidden(),
               "x of %zu and y of %zu columns, hidden %zu",
               request.x.num_cols,
               request.y.num_cols,
               experts.hidden());
    WorkspaceCursor cursor(workspace);
    const size_t h_cols = experts.intermediate_max();
    const Rows<Bf16> h = make_rows(cursor.take<Bf16>(num_rows * h_cols), num_rows, h_cols);
    const std::span work(cursor.take<Work>(request.groups.size()), request.groups.size());

    const std::span<std::byte> int8_scratch = cursor.rest();

    const unsigned num_threads = parallel.num_threads();
    Plan total = plan(request, &PackedExpert::gate_up, num_threads, work.data());
    LinearInput input(request.x.slice(0, num_rows));
    if (experts.has_int8()) {
        input = quantise_groups(input.rows, work, &PackedExpert::gate_up, int8_scratch, parallel);
    }
    run_plan(work,
             total,
             &PackedExpert::gate_up,
             parallel,
             [&](const Work& item, size_t first, size_t last) {
                 gate_up_part(item, first, last, input, h);
             });
    total = plan(request, &PackedExpert::down, num_threads, work.data());
    input = LinearInput(h);
    if (experts.has_int8()) {
        input = quantise_groups(input.rows, work, &PackedExpert::down, int8_scratch, parallel);
    }
    run_plan(work,
             total,
             &PackedExpert::down,
             parallel,
             [&](const Work& item, size_t first, size_t last) {
                 down_part(request, item, first, last, input);
             });
    return {};
}

}  // namespace afd::ops
