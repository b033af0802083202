// SPDX-License-Identifier: Apache-2.0
#include "calls/error_parameter.h"

#include <algorithm>
#include <vector>

namespace afd::calls {
namespace {

bool is_of_name(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = begin;
        while (end < text.size() && is_of_name(text[end])) ++end;
        if (end > begin) words.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

}  // namespace

std::string error_parameter(const ops::OperatorSpec& spec, std::string_view message) {
    if (message.substr(0, spec.name.size()) == spec.name) message.remove_prefix(spec.name.size());
    const std::vector<std::string_view> words = words_of(message);
    // "there is no attribute NAME; there are ...": the others are what there is.
    for (size_t i = 0; i + 1 < words.size() && i < 6; ++i) {
        const bool is_kind = words[i] == "attribute" || words[i] == "tensor";
        if (is_kind && i >= 3 && words[0] == "there") return std::string(words[i + 1]);
    }
    const auto found = std::find_if(words.begin(), words.end(), [&](std::string_view word) {
        return spec.find_attribute(word) != nullptr || spec.find_tensor(word) != nullptr;
    });
    // A one-letter name is also a word ("x is ...", but also "a", "y = x"): fine where the sentence
    // begins with it ("k is ...", "attribute k is ...").
    const auto first = words.begin() + (!words.empty() && words[0] == "attribute" ? 1 : 0);
    if (found != words.end() && (found->size() > 1 || found == first)) return std::string(*found);
    // A dimension ("H is ..."): the first tensor that has it.
    for (const ops::TensorSpec& tensor : spec.tensors) {
        const std::vector<std::string_view> dimensions = words_of(tensor.shape);
        if (!words.empty() && std::ranges::find(dimensions, words[0]) != dimensions.end()) {
            return std::string(tensor.name);
        }
    }
    if (words.empty()) return "";
    const bool names = words[0].find('_') != std::string_view::npos || words[0] == "workspace";
    return names ? std::string(words[0]) : "";
}

}  // namespace afd::calls
