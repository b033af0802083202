// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/comma_list.h"

namespace afd::daemon {

std::vector<std::string> comma_list(std::string_view text) {
    std::vector<std::string> words(1);
    for (const char c : text) {
        if (c == ',') {
            words.emplace_back();
        } else {
            words.back() += c;
        }
    }
    return words;
}

}  // namespace afd::daemon
