// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/config.h"

namespace afd::model {

std::string describe(const QuantisationConfig& quantisation) {
    const auto part = [](const char* what, ops::WeightFormat format) {
        return format == ops::WeightFormat::kBf16
                   ? std::string()
                   : std::string(what) + " " + std::string(ops::name_of(format));
    };
    const std::string experts =
        part("experts", quantisation.experts) + (quantisation.smooth ? " smooth" : "") +
        (quantisation.int4_rows == ops::Int4Rows::kInt8 ? " with int8 rows" : "");
    const std::string shared = quantisation.has_bf16_shared ? "shared and dense bf16" : "";
    const std::string attention = part("attention", quantisation.attention);
    const std::string kv = quantisation.kv == ops::KvDtype::kBf16
                               ? std::string()
                               : "kv " + std::string(ops::name_of(quantisation.kv));
    std::string text;
    for (const std::string& said : {experts, shared, attention, kv}) {
        if (said.empty()) continue;
        text += (text.empty() ? "" : ", ") + said;
    }
    return text.empty() ? "bf16" : text;
}

}  // namespace afd::model
