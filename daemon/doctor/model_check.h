// SPDX-License-Identifier: Apache-2.0
#pragma once

// What afdd --check-config says of a model without starting anything.

#include <string>

#include "model/checkpoint/config.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "proto/status.h"

namespace afd::daemon {

struct CheckedModel {
    model::ModelConfig config;
    std::string text;
};

// Whether anything of the tensors is in the directory: all of them should be then.
bool has_weights(const std::string& directory);

// With lines that begin with '#', so that the output stays a configuration file: what config.json
// says of the model, and the tensors and tokenizer beside it. A directory that has nothing of the
// weights, or no tokenizer yet, is a line, not an error: a checkpoint may be judged by its
// config.json before it is downloaded. `int4_rows` is shown where the model can have them.
// Errors: those of the model's files; the message names file, key or tensor, and what is supported.
Result<CheckedModel> check_model(const std::string& directory,
                                 ops::KvDtype kv,
                                 ops::Int4Rows int4_rows);

}  // namespace afd::daemon
