// SPDX-License-Identifier: Apache-2.0

#include "tools/afd-op/moe_plan_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace afd::tools {
namespace {

using ops::ExpertQuantisation;
using ops::RowOverflow;

ExpertQuantisation quantisation_of(const std::string& weights) {
    if (weights == "int8") return ExpertQuantisation::kInt8;
    if (weights == "fp8") return ExpertQuantisation::kFp8;
    return weights == "int4" ? ExpertQuantisation::kInt4 : ExpertQuantisation::kNone;
}

ops::RowDtype dispatch_dtype_of(const std::string& name) {
    if (name == "int8") return ops::RowDtype::kInt8;
    return name == "fp8" ? ops::RowDtype::kFp8 : ops::RowDtype::kBf16;
}

RowOverflow overflow_of(const std::string& name) {
    if (name == "error") return RowOverflow::kError;
    return name == "backpressure" ? RowOverflow::kBackpressure : RowOverflow::kChunk;
}

std::string line_of(const ops::MoePair& pair, ops::MoeLimits limits) {
    const bool is_bounded = pair.prepare_finalize->capability->bounds_rows;
    if (!is_bounded) limits.config.row_fraction = 1.0;
    const std::string names = fmt::format(
        "| `{}` | `{}` |", pair.prepare_finalize->capability->name, pair.experts->capability->name);
    const Result<ops::MoePlan> plan = ops::plan_moe(pair, limits);
    if (!plan.ok()) return fmt::format("{} {} | | | | | |\n", names, plan.error().message);
    const ops::MoeMemory& worst = plan.value().worst_case;
    // A part within one process has none, which is not the same as no bytes.
    const size_t shared = plan.value().shared_memory.value();
    return fmt::format("{} {} | {} | {} | {} | {} | {} |\n",
                       names,
                       worst.dispatch.value(),
                       worst.driver.value(),
                       worst.total().value(),
                       is_bounded ? std::to_string(plan.value().bounded.total().value()) : "",
                       plan.value().rank_rows_max.value(),
                       shared > 0 ? std::to_string(shared) : "");
}

}  // namespace

CLI::App* add_moe_plan_command(CLI::App& app, MoePlanOptions& options) {
    CLI::App* command = app.add_subcommand(
        "moe-plan", "Bytes that each composition of the fused-MoE framework reserves");
    ops::FusedMoeConfig& config = options.limits.config;
    command->add_option("--hidden", config.hidden)->required();
    command->add_option("--intermediate", options.limits.intermediate, "Of the widest expert")
        ->required();
    command->add_option("--experts", config.num_experts, "Routed experts of a layer")->required();
    command->add_option("--top-k", config.top_k)->required();
    command->add_option("--tokens", config.max_num_tokens, "Of one micro-batch, at most")
        ->required();
    command->add_option("--shared", config.num_shared, "Shared slots of a token");
    command->add_option("--layers", options.limits.num_layers);
    command->add_option("--ranks", config.num_ranks, "Over which the experts lie");
    command->add_option(
        "--block-tokens", options.limits.block_tokens, "Of a two-phase round, at a time");
    command->add_option("--dispatch-dtype", options.dispatch_dtype, "How rows travel")
        ->check(CLI::IsMember({"bf16", "int8", "fp8"}));
    command->add_option("--micro-batches", config.num_micro_batches, "In flight at a time");
    command->add_option("--chunk-tokens", config.max_chunk_tokens, "That experts take at once");
    command->add_option("--threads", options.limits.num_threads);
    command->add_option("--row-fraction", config.row_fraction, "Reserved of the worst case");
    command->add_option("--overflow", options.overflow, "What a call that needs more meets")
        ->check(CLI::IsMember({"error", "backpressure", "chunk"}));
    command->add_option("--weights", options.weights)
        ->check(CLI::IsMember({"bf16", "int8", "int4", "fp8"}));
    command
        ->add_option("--int4-rows",
                     options.int4_rows,
                     "Rows that int4 experts multiply, as afdd's int4_rows")
        ->check(CLI::IsMember({"bf16", "int8"}));
    return command;
}

Result<std::string> moe_plan_table(const MoePlanOptions& options) {
    ops::MoeLimits limits = options.limits;
    limits.config.overflow = overflow_of(options.overflow);
    limits.config.quantisation = quantisation_of(options.weights);
    limits.config.dispatch_dtype = dispatch_dtype_of(options.dispatch_dtype);
    limits.int4_rows = ops::parse_int4_rows(options.int4_rows).value_or(ops::Int4Rows::kBf16);
    AFD_TRY(ops::check(limits));
    if (limits.config.top_k > limits.config.num_experts) {
        return Error{Code::kInvalidArgument,
                     fmt::format("top_k is {}; there are {} experts",
                                 limits.config.top_k,
                                 limits.config.num_experts)};
    }
    std::string text = fmt::format(
        "| PrepareFinalize | Experts | dispatch | driver | worst case | row_fraction {} | rows of "
        "a rank | windows or segments |\n|---|---|---|---|---|---|---|---|\n",
        limits.config.row_fraction);
    for (const ops::MoePair& pair : ops::moe_pairs()) {
        if (pair.quantisation == limits.config.quantisation) text += line_of(pair, limits);
    }
    return text;
}

}  // namespace afd::tools
