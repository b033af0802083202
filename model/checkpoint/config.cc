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
        part("experts", quantisation.experts) + (quantisation.smooth ? " smooth" : "");
    const std::string attention = part("attention", quantisation.attention);
    if (experts.empty() && attention.empty()) return "bf16";
    return experts + (experts.empty() || attention.empty() ? "" : ", ") + attention;
}

}  // namespace afd::model
