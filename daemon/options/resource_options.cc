// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/choice_member.h"
#include "daemon/options/option_topics.h"

namespace afd::daemon {
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
        {.name = "kv_reserve",
         .member = choice<&C::kv_reserve>(),
         .default_text = "grow",
         .unit = "",
         .description =
             "KV room of a request: grow: as its tokens come, and younger ones give way; "
             "whole: for all it may produce, at once",
         .choices = names_up_to(KvReserve::kWhole)},
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
         "Compute threads of an attention worker; 0: share of the cores, or of pin's list",
         0,
         1024},
        {"ffn_threads",
         &C::ffn_threads,
         "0",
         "",
         "Compute threads of an FFN worker; 0: share of the cores, or of pin's list",
         0,
         1024},
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
