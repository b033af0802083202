// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/ignored_params.h"

#include <algorithm>

#include "daemon/http/message/http_word.h"

namespace afd::daemon {

namespace {

constexpr size_t kNamesMax = 32;
constexpr size_t kNameBytesMax = 128;

}  // namespace

void add_ignored_params(const std::vector<std::string>& names,
                        std::vector<HttpResponse::Header>& headers) {
    if (names.empty()) return;
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), kNamesMax); ++i) {
        if (i > 0) text += ", ";
        for (const char c : names[i].substr(0, kNameBytesMax))
            text += is_plain(c) || c == '[' || c == ']' || c == '$' ? c : '?';
    }
    if (names.size() > kNamesMax) text += ", ...";
    headers.emplace_back("X-Ignored-Params", std::move(text));
}

}  // namespace afd::daemon
