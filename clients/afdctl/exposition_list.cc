// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/exposition_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

namespace afd::client {
namespace {

struct Family {
    std::string name;
    std::string type;
    std::string help;
    std::string other_name;
};

std::vector<Family> families_of(const std::string& exposition) {
    std::vector<Family> families;
    std::istringstream lines(exposition);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string hash;
        std::string what;
        Family family;
        words >> hash >> what >> family.name;
        if (hash != "#" || (what != "HELP" && what != "TYPE")) continue;
        std::string rest;
        std::getline(words >> std::ws, rest);
        if (what == "TYPE") {
            if (!families.empty() && families.back().name == family.name) {
                families.back().type = rest;
            }
            continue;
        }
        family.help = rest;
        const bool is_other = family.name.find(':') != std::string::npos;
        const auto same = std::find_if(families.begin(), families.end(), [&](const Family& one) {
            return is_other && one.help == family.help;
        });
        if (same != families.end()) {
            same->other_name = family.name;
        } else {
            families.push_back(std::move(family));
        }
    }
    return families;
}

// Words in lines of at most kWidth, those after the first with two blanks before them.
std::string wrapped(const std::string& text) {
    constexpr size_t kWidth = 100;
    std::string lines;
    size_t column = 0;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (column > 0 && column + 1 + word.size() > kWidth) {
            lines += "\n  ";
            column = 2;
        } else if (column > 0) {
            lines += " ";
            ++column;
        }
        lines += word;
        column += word.size();
    }
    return lines + "\n";
}

}  // namespace

std::string exposition_list(const std::string& exposition) {
    std::string list;
    for (const Family& family : families_of(exposition)) {
        std::string item = fmt::format("* `{}` ({}): {}.", family.name, family.type, family.help);
        if (!family.other_name.empty()) item += fmt::format(" `{}`.", family.other_name);
        list += wrapped(item);
    }
    return list;
}

}  // namespace afd::client
