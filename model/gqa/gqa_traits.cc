// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_traits.h"

#include <fmt/core.h>

namespace afd::model {

GqaTraits read_gqa_traits(KeyReader& keys,
                          uint32_t hidden,
                          std::optional<uint32_t> usual_head_dim) {
    const uint32_t num_heads = keys.count("num_attention_heads", 1, kHeadsMax, {});
    const uint32_t num_kv_heads = keys.count("num_key_value_heads", 1, kHeadsMax, num_heads);
    if (num_heads % num_kv_heads != 0) {
        keys.refuse(Code::kInvalidArgument,
                    "num_key_value_heads",
                    fmt::format("a divisor of num_attention_heads, {}", num_heads));
    }
    if (keys.find("head_dim") == nullptr && !usual_head_dim && hidden % num_heads != 0) {
        keys.refuse(
            Code::kInvalidArgument,
            "num_attention_heads",
            fmt::format("a divisor of hidden_size, {}, where head_dim is not given", hidden));
    }
    const uint32_t share = keys.failed() ? 2 : hidden / num_heads;
    const uint32_t head_dim =
        keys.count("head_dim", 2, kDimensionMax, usual_head_dim.value_or(share));
    if (head_dim % 2 != 0) keys.refuse(Code::kInvalidArgument, "head_dim", "an even number");
    GqaTraits traits;
    traits.shape = {.hidden = hidden,
                    .num_heads = num_heads,
                    .num_kv_heads = num_kv_heads,
                    .head_dim = head_dim};
    traits.rotary_dim = head_dim;
    return traits;
}

}  // namespace afd::model
