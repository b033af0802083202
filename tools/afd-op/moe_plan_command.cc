// SPDX-License-Identifier: Apache-2.0

#include "tools/afd-op/moe_plan_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <string_view>

#include "proto/failure.h"
#include "tools/number_option.h"

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

struct Named {
    std::string_view field;
    std::string_view option;
};
constexpr Named kOptions[] = {
    {"hidden", "--hidden"},
    {"intermediate", "--intermediate"},
    {"num_experts", "--experts"},
    {"top_k", "--top-k"},
    {"max_num_tokens", "--tokens"},
    {"num_shared", "--shared"},
    {"num_layers", "--layers"},
    {"num_ranks", "--ranks"},
    {"block_tokens", "--block-tokens"},
    {"dispatch_dtype", "--dispatch-dtype"},
    {"num_micro_batches", "--micro-batches"},
    {"max_chunk_tokens", "--chunk-tokens"},
    {"num_threads", "--threads"},
    {"row_fraction", "--row-fraction"},
    {"quantisation", "--weights"},
};

// The framework's error with the options in place of its fields.
Error in_options(Error error) {
    const auto is_of_name = [](unsigned char c) { return c == '_' || std::isalnum(c) != 0; };
    std::string text;
    for (auto at = error.message.begin(); at != error.message.end();) {
        const auto end = std::find_if_not(at, error.message.end(), is_of_name);
        if (end == at) {
            text += *at++;
            continue;
        }
        const std::string word(at, end);
        const auto* found = std::find_if(std::begin(kOptions),
                                         std::end(kOptions),
                                         [&](const Named& named) { return named.field == word; });
        text += found == std::end(kOptions) ? word : found->option;
        at = end;
    }
    error.message = text;
    return error;
}

Result<> check_options(const ops::MoeLimits& limits) {
    const ops::FusedMoeConfig& config = limits.config;
    if (const Result<> done = ops::check(limits); !done.ok()) return in_options(done.error());
    if (config.top_k > config.num_experts) {
        return invalid_argument("--top-k is {}; there are {} experts",
                                with(config.top_k, config.num_experts));
    }
    if (config.num_ranks > config.num_experts) {
        return invalid_argument(
            "--ranks is {}; there are {} experts, each on one rank, so {} ranks would hold none",
            with(config.num_ranks, config.num_experts, config.num_ranks - config.num_experts));
    }
    return {};
}

std::string line_of(const ops::MoePair& pair, ops::MoeLimits limits) {
    const bool is_bounded = pair.prepare_finalize->capability->bounds_rows;
    if (!is_bounded) limits.config.row_fraction = 1.0;
    const std::string names = fmt::format(
        "| `{}` | `{}` |", pair.prepare_finalize->capability->name, pair.experts->capability->name);
    const Result<ops::MoePlan> plan = ops::plan_moe(pair, limits);
    if (!plan.ok())
        return fmt::format("{} {} | | | | | |\n", names, in_options(plan.error()).message);
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
    const auto size = [&](const char* name, size_t& value, const char* meaning) {
        return command->add_option(name, value, meaning)->transform(whole_from(0, UINT64_MAX));
    };
    size("--hidden", config.hidden, "Elements of a row")->required();
    size("--intermediate", options.limits.intermediate, "Of the widest expert")->required();
    size("--experts", config.num_experts, "Routed experts of a layer")->required();
    size("--top-k", config.top_k, "Experts of a token")->required();
    size("--tokens", config.max_num_tokens, "Of one micro-batch, at most")->required();
    size("--shared", config.num_shared, "Shared slots of a token")->capture_default_str();
    size("--layers", options.limits.num_layers, "Layers with experts")->capture_default_str();
    size("--ranks", config.num_ranks, "Over which the experts lie")->capture_default_str();
    size("--block-tokens", options.limits.block_tokens, "Of a two-phase round, at a time")
        ->capture_default_str();
    command->add_option("--dispatch-dtype", options.dispatch_dtype, "How rows travel")
        ->check(CLI::IsMember({"bf16", "int8", "fp8"}))
        ->capture_default_str();
    size("--micro-batches", config.num_micro_batches, "In flight at a time")->capture_default_str();
    size("--chunk-tokens", config.max_chunk_tokens, "That experts take at once; 0: all")
        ->capture_default_str();
    command->add_option("--threads", options.limits.num_threads, "Of the process")
        ->transform(whole_from(1, 1024))
        ->capture_default_str();
    command->add_option("--row-fraction", config.row_fraction, "Reserved of the worst case")
        ->capture_default_str();
    command->add_option("--overflow", options.overflow, "What a call that needs more meets")
        ->check(CLI::IsMember({"error", "backpressure", "chunk"}))
        ->capture_default_str();
    command->add_option("--weights", options.weights, "Of the experts")
        ->check(CLI::IsMember({"bf16", "int8", "int4", "fp8"}))
        ->capture_default_str();
    command
        ->add_option("--int4-rows",
                     options.int4_rows,
                     "Rows that int4 experts multiply, as afdd's int4_rows")
        ->check(CLI::IsMember({"bf16", "int8"}))
        ->capture_default_str();
    command->footer(
        "Counted are rows, their places and workspaces, the windows or segments of one session,\n"
        "and below the table the experts' weights. Not counted: attention with its weights and KV\n"
        "cache, routers, and what else a process takes; see `afdd --check-config`.");
    return command;
}

Result<std::string> moe_plan_table(const MoePlanOptions& options) {
    ops::MoeLimits limits = options.limits;
    ops::FusedMoeConfig& config = limits.config;
    config.overflow = overflow_of(options.overflow);
    config.quantisation = quantisation_of(options.weights);
    config.dispatch_dtype = dispatch_dtype_of(options.dispatch_dtype);
    limits.int4_rows = ops::parse_int4_rows(options.int4_rows).value_or(ops::Int4Rows::kBf16);
    AFD_TRY(check_options(limits));
    std::string text = fmt::format(
        "| PrepareFinalize | Experts | dispatch | driver | worst case | row_fraction {} | rows of "
        "a rank | windows or segments |\n|---|---|---|---|---|---|---|---|\n",
        config.row_fraction);
    for (const ops::MoePair& pair : ops::moe_pairs()) {
        if (pair.quantisation == config.quantisation) text += line_of(pair, limits);
    }
    return text +
           fmt::format(
               "\nWeights ({}) of a rank's {} routed and {} shared experts in {} layers, all "
               "as wide as the widest: {} bytes\n",
               options.weights,
               (config.num_experts + config.num_ranks - 1) / config.num_ranks,
               config.num_shared,
               limits.num_layers,
               ops::rank_weight_bytes(limits).text());
}

}  // namespace afd::tools
