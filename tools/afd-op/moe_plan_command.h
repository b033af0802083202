// SPDX-License-Identifier: Apache-2.0
#pragma once

// `afd-op moe-plan`: the bytes of every composition of the fused-MoE framework, for given limits;
// of parts between processes also those of one session's windows or segments, and the weights.

#include <string>

#include "ops/fused_moe/plan/moe_plan.h"

namespace CLI {
class App;
}

namespace afd::tools {

struct MoePlanOptions {
    ops::MoeLimits limits;
    std::string weights = "bf16";
    std::string int4_rows = "bf16";
    std::string overflow = "chunk";
    std::string dispatch_dtype = "bf16";
};

// Adds the subcommand; `options` outlives the parsing.
CLI::App* add_moe_plan_command(CLI::App& app, MoePlanOptions& options);

// A Markdown table with one line for each composition, or the reason why it is none; below it the
// bytes of a rank's weights. Errors: kInvalidArgument, by the names of the options: sizes that no
// composition serves, more ranks than experts.
Result<std::string> moe_plan_table(const MoePlanOptions& options);

}  // namespace afd::tools
