// SPDX-License-Identifier: Apache-2.0
#include "model/json/other_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace afd::model {
namespace {

struct OtherFormat {
    std::string_view prefix;
    std::string_view name;
    std::string_view remedy;
};

constexpr OtherFormat html_page(std::string_view prefix) {
    return {
        prefix, "an HTML page", ": a server gave it in place of the file. Fetch the file again"};
}

constexpr std::array kOthers = {
    OtherFormat{"PK\x03\x04", "a zip archive, as .npz and .pt files are", ""},
    OtherFormat{"\x93NUMPY", "a NumPy array (.npy)", ""},
    // "version https://git-lfs.github.com/spec/v1".
    OtherFormat{"version ", "a pointer of Git LFS", "; fetch the file itself with git lfs pull"},
    html_page("<!DOCTYP"),
    html_page("<!doctyp"),
    html_page("<html"),
    html_page("<HTML"),
};

}  // namespace

std::string other_format_text(std::string_view text, std::string_view wanted) {
    const auto at = std::ranges::find_if(
        kOthers, [&](const OtherFormat& other) { return text.starts_with(other.prefix); });
    if (at == kOthers.end()) return {};
    return fmt::format("this is {}, no {}{}", at->name, wanted, at->remedy);
}

}  // namespace afd::model
