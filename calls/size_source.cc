// SPDX-License-Identifier: Apache-2.0
#include "calls/size_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ops/record/operator_check.h"

namespace afd::calls {
namespace {

using ops::TensorView;

std::vector<std::string_view> parts_of(std::string_view text, std::string_view separators) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find_first_of(separators), text.size());
        if (end > 0) parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

// The dimensions of every form of "[P, H] | [expert_num, H]" that has as many as the view.
std::vector<std::vector<std::string_view>> dimensions_of(std::string_view forms,
                                                         const TensorView& view) {
    std::vector<std::vector<std::string_view>> found;
    for (const std::string_view form : parts_of(forms, "|")) {
        std::vector<std::string_view> dimensions = parts_of(form, "[], ");
        if (dimensions.size() == view.rank) found.push_back(std::move(dimensions));
    }
    return found;
}

}  // namespace

const NamedTensor* SizeSources::find(std::string_view name) const {
    const auto found = std::find_if(given_.begin(), given_.end(), [&](const NamedTensor& tensor) {
        return tensor.name == name;
    });
    return found == given_.end() ? nullptr : &*found;
}

SizeSources::Source SizeSources::of_attribute(std::string_view name) const {
    const nlohmann::json& value = attributes_.at(std::string(name));
    int64_t largest = 0;
    if (value.is_number_integer()) largest = value.get<int64_t>();
    if (value.is_array()) {
        for (const nlohmann::json& element : value) {
            largest = std::max(largest, element.get<int64_t>());
        }
    }
    return {name, static_cast<uint64_t>(std::max<int64_t>(0, largest))};
}

SizeSources::Source SizeSources::of_symbol(std::string_view symbol) const {
    if (const ops::AttributeSpec* known = spec_.find_attribute(symbol)) {
        return of_attribute(known->name);
    }
    for (const NamedTensor& tensor : given_) {
        for (const auto& dimensions :
             dimensions_of(spec_.find_tensor(tensor.name)->shape, tensor.view)) {
            const auto at = std::find(dimensions.begin(), dimensions.end(), symbol);
            if (at == dimensions.end()) continue;
            return {tensor.name, tensor.view.shape[static_cast<size_t>(at - dimensions.begin())]};
        }
    }
    return {};
}

std::string_view SizeSources::of_output(const NamedTensor& output) const {
    Source largest;
    for (const auto& dimensions :
         dimensions_of(spec_.find_tensor(output.name)->shape, output.view)) {
        for (const std::string_view dimension : dimensions) {
            for (const std::string_view symbol : parts_of(dimension, "+*")) {
                const Source source = of_symbol(symbol);
                if (source.size > largest.size) largest = source;
            }
        }
    }
    return largest.name;
}

std::string_view SizeSources::largest_of(std::span<const std::string_view> names) const {
    Source largest;
    for (const std::string_view name : names) {
        Source source;
        if (spec_.find_attribute(name) != nullptr) {
            source = of_attribute(name);
        } else if (const NamedTensor* tensor = find(name)) {
            source = {name, tensor->view.num_elements()};
        }
        if (source.size > largest.size) largest = source;
    }
    return largest.name;
}

std::string SizeSources::text(std::string_view name) const {
    if (const NamedTensor* tensor = find(name)) {
        return fmt::format("{} has shape {}", name, ops::shape_text(tensor->view));
    }
    return fmt::format("{} is {}", name, attributes_.at(std::string(name)).dump());
}

}  // namespace afd::calls
