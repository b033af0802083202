// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

#include "daemon/options/choice_member.h"
#include "model/unicode/utf8.h"
#include "proto/socket_path.h"
#include "schedule/layout/geometry.h"

namespace afd::daemon {

namespace {

// The rule of check_instance_name(), in words that fit behind the option's name and value.
Result<> check_instance(const std::string& value) {
    if (check_instance_name(value).ok()) return {};
    return Error{Code::kInvalidArgument,
                 "must be 1 to " + std::to_string(kInstanceNameBytesMax) + " of a-z, 0-9 and '_'"};
}

// Workers and clients are told it as text.
Result<> check_model_path(const std::string& value) {
    if (model::is_valid_utf8(value)) return {};
    return Error{Code::kInvalidArgument, "the path must be UTF-8; rename it, or link to it"};
}

}  // namespace

std::vector<ConfigOption> instance_options() {
    using C = Config;
    return {
        {.name = "model",
         .member = &C::model,
         .default_text = "",
         .unit = "",
         .description = "Directory of the model (config.json, *.safetensors)",
         .check = check_model_path},
        {.name = "instance",
         .member = &C::instance,
         .default_text = "default",
         .unit = "",
         .description = "Name of this instance: of its sockets and shared memory",
         .check = check_instance},
        {.name = "topology",
         .member = choice<&C::topology>(),
         .default_text = "disaggregated",
         .unit = "",
         .description = "Experts in FFN workers, or inside each attention worker",
         .choices = names_up_to(Topology::kColocated)},
        {"attention_workers",
         &C::attention_workers,
         "1",
         "",
         "Attention workers (A)",
         1,
         schedule::kSessionsMax},
        {"ffn_workers", &C::ffn_workers, "1", "", "FFN workers (F)", 1, kMostFfnWorkers},
        {"micro_batches",
         &C::micro_batches,
         "0",
         "",
         "Micro-batches in flight per attention worker (M); 0: 2 if cores are enough, else 1",
         0,
         schedule::kMicroBatchesMax},
        {"micro_batch_size",
         &C::micro_batch_size,
         "256",
         "tokens",
         "Tokens of a micro-batch: size of a prefill chunk (BS)",
         1,
         4096},
    };
}

}  // namespace afd::daemon
