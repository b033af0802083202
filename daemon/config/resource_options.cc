// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/choice_member.h"
#include "daemon/config/option_topics.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {
namespace {

std::vector<std::string> numeric_class_names() {
    std::vector<std::string> names = {"auto"};
    for (const ops::NumericClass c : ops::numeric_classes()) names.emplace_back(ops::name_of(c));
    return names;
}

}  // namespace

std::vector<ConfigOption> resource_options() {
    using C = Config;
    return {
        {"kv_tokens",
         &C::kv_tokens,
         "32768",
         "tokens",
         "KV cache of each attention worker",
         64,
         uint64_t{1} << 31},
        {.name = "kv_dtype",
         .member = choice<&C::kv_dtype>(),
         .default_text = "bf16",
         .unit = "",
         .description = "How keys and values are kept; all but bf16 take half the memory",
         .choices = names_up_to(ops::KvDtype::kInt8Channel)},
        {"prefix_cache",
         &C::prefix_cache,
         "true",
         "",
         "Keep and share KV blocks of prompts that begin alike"},
        {"max_sequences",
         &C::max_sequences,
         "64",
         "",
         "Sequences that run at once on an attention worker",
         1,
         65536},
        {"max_queue",
         &C::max_queue,
         "512",
         "",
         "Requests that wait for KV room; more are refused",
         0,
         1000000},
        {"attention_threads",
         &C::attention_threads,
         "0",
         "",
         "Compute threads of an attention worker; 0: share of the cores",
         0,
         1024},
        {"ffn_threads",
         &C::ffn_threads,
         "0",
         "",
         "Compute threads of an FFN worker; 0: share of the cores",
         0,
         1024},
        {.name = "numeric_class",
         .member = &C::numeric_class,
         .default_text = "auto",
         .unit = "",
         .description = "Kernels; results are bit-identical within a class",
         .choices = numeric_class_names()},
        {.name = "residual",
         .member = choice<&C::residual>(),
         .default_text = "fp32",
         .unit = "",
         .description = "Residual stream; bf16: less exact, a class of its own",
         .choices = names_up_to(model::ResidualType::kFp32)},
        {.name = "int4_rows",
         .member = choice<&C::int4_rows>(),
         .default_text = "bf16",
         .unit = "",
         .description = "Rows that int4 experts multiply; int8: faster, a class of its own",
         .choices = names_up_to(ops::Int4Rows::kInt8)},
        {"spin_us",
         &C::spin_us,
         "50",
         "us",
         "Spin this long before sleeping; 0: sleep at once",
         0,
         1000000},
    };
}

}  // namespace afd::daemon
