// SPDX-License-Identifier: Apache-2.0
#pragma once

// The prompts of a completion: a text, token ids, or an array of either.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/http/call/api_model.h"
#include "daemon/http/message/api_error.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// One Generate for each prompt of `prompt`, with nothing else in it. More than `prompts_max` are
// refused before there is one of each. Errors: 400 about `prompt`, or the element that is wrong.
ApiResult<std::vector<client::Generate>> read_prompts(const nlohmann::json& prompt,
                                                      size_t prompts_max);

// An array of token ids, each an integer from 0 on; the vocabulary is the gateway's to check.
// Errors: 400 about `name`.
ApiResult<client::TokenIds> read_token_ids(const nlohmann::json& ids, const std::string& name);

// The tokens of a text; `adds_special`: with those that the model was trained to begin and end a
// prompt with. Errors: 400 about `prompt`.
ApiResult<std::vector<uint32_t>> encode_prompt(const std::string& text,
                                               bool adds_special,
                                               const ApiModel& model);

// The text of a prompt, as it is echoed; `keeps_special`: of ids, with their special tokens. Ids
// that the vocabulary does not have give no text.
std::string text_of_prompt(const client::Generate& prompt,
                           bool keeps_special,
                           const ApiModel& model);

}  // namespace afd::daemon
