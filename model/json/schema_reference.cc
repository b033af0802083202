// SPDX-License-Identifier: Apache-2.0
#include "model/json/schema_reference.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "model/json/percent_encoding.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string unescaped(std::string_view token) {
    std::string key;
    for (size_t i = 0; i < token.size(); ++i) {
        const bool is_escape = token[i] == '~' && i + 1 < token.size();
        if (is_escape) ++i;
        key += !is_escape ? token[i] : token[i] == '1' ? '/' : '~';
    }
    return key;
}

// Decimal, and no 0 in front of other digits.
const OrderedJson* element_at(const OrderedJson& array, std::string_view digits) {
    size_t index = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, index);
    const bool is_number = read.ec == std::errc() && read.ptr == end;
    const bool has_zeros = digits.size() > 1 && digits.front() == '0';
    return is_number && !has_zeros && index < array.size() ? &array[index] : nullptr;
}

const OrderedJson* member_at(const OrderedJson& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

}  // namespace

const OrderedJson* find_reference(const OrderedJson& root, std::string_view fragment) {
    const std::string pointer = percent_decoded(fragment);
    std::string_view rest = pointer;
    const OrderedJson* at = &root;
    while (!rest.empty() && at != nullptr) {
        if (rest.front() != '/') return nullptr;
        rest.remove_prefix(1);
        const size_t size = std::min(rest.find('/'), rest.size());
        const std::string key = unescaped(rest.substr(0, size));
        rest.remove_prefix(size);
        at = at->is_object()  ? member_at(*at, key)
             : at->is_array() ? element_at(*at, key)
                              : nullptr;
    }
    return at;
}

}  // namespace afd::model
