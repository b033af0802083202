// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

#include "daemon/options/choice_member.h"

namespace afd::daemon {

std::vector<ConfigOption> two_phase_options() {
    using C = Config;
    return {
        {.name = "dispatch",
         .member = choice<&C::dispatch>(),
         .default_text = "auto",
         .unit = "",
         .description = "How prompts get to FFN workers: by windows, in two phases, or by length",
         .choices = names_up_to(Dispatch::kTwoPhase)},
        {"prefill_tokens_max",
         &C::prefill_tokens_max,
         "0",
         "tokens",
         "Tokens of a two-phase prefill batch; 0: 8 micro-batches",
         0,
         uint64_t{1} << 20},
        {"two_phase_threshold",
         &C::two_phase_threshold,
         "0",
         "tokens",
         "dispatch = auto: longer prompts go in two phases; 0: micro_batch_size, over ucx none",
         0,
         uint64_t{1} << 20},
        {"two_phase_block",
         &C::two_phase_block,
         "1024",
         "tokens",
         "Tokens that a two-phase round sends and returns at a time",
         1,
         65536},
        {"two_phase_memory_max",
         &C::two_phase_memory_max,
         "0",
         "bytes",
         "Memory of the two-phase rounds of an FFN worker; 0: what the machine has",
         0,
         uint64_t{1} << 46},
    };
}

}  // namespace afd::daemon
