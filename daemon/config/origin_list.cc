// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/origin_list.h"

#include <algorithm>
#include <cctype>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

std::string in_small_letters(std::string_view text) {
    std::string small(text);
    std::ranges::transform(small, small.begin(), [](char c) {
        return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    return small;
}

// SCHEME://HOST, or SCHEME://HOST:PORT, and nothing behind it.
bool is_origin(std::string_view text) {
    constexpr std::string_view kMark = "://";
    const size_t mark = text.find(kMark);
    if (mark == std::string_view::npos || mark == 0) return false;
    const std::string_view host = text.substr(mark + kMark.size());
    return !host.empty() && std::ranges::all_of(host, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view(".-_:[]").find(c) != std::string_view::npos;
    });
}

std::string_view without_blanks(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

}  // namespace

Result<OriginList> OriginList::parse(std::string_view text) {
    OriginList list;
    list.has_any_ = text == "*";
    if (text.empty() || list.has_any_) return list;
    for (;;) {
        const size_t comma = std::min(text.find(','), text.size());
        const std::string_view origin = without_blanks(text.substr(0, comma));
        if (!is_origin(origin)) {
            return invalid_argument(
                "must be empty, *, or origins with commas between, such as "
                "https://chat.example,http://localhost:3000");
        }
        list.origins_.push_back(in_small_letters(origin));
        if (comma == text.size()) return list;
        text.remove_prefix(comma + 1);
    }
}

bool OriginList::has(std::string_view origin) const {
    // A page from a file, or in a frame without rights, has the origin "null".
    if (has_any_) return is_origin(origin) || origin == "null";
    return std::ranges::find(origins_, in_small_letters(origin)) != origins_.end();
}

}  // namespace afd::daemon
