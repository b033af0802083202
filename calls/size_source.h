// SPDX-License-Identifier: Apache-2.0
#pragma once

// SizeSources: which parameter of a call makes a part of its memory as large as it is, for the
// errors that refuse the call for it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "calls/named_tensor.h"
#include "ops/record/operator_spec.h"

namespace afd::calls {

// Views of what it is made of.
class SizeSources {
  public:
    // `attributes`: every attribute, defaults included.
    SizeSources(const ops::OperatorSpec& spec,
                std::span<const NamedTensor> given,
                const nlohmann::json& attributes)
        : spec_(spec), given_(given), attributes_(attributes) {}

    // Of the attributes and tensors whose sizes the record writes into the output's shape, the
    // largest; empty where its names are of neither ("P", which only a rule explains).
    std::string_view of_output(const NamedTensor& output) const;
    // Of these attributes and tensors the one with the largest value or the most elements; empty if
    // none is given.
    std::string_view largest_of(std::span<const std::string_view> names) const;
    // "expert_num is 4", "x has shape [1000, 256]".
    std::string text(std::string_view name) const;

  private:
    struct Source {
        std::string_view name;
        uint64_t size = 0;
    };
    Source of_symbol(std::string_view symbol) const;
    Source of_attribute(std::string_view name) const;
    const NamedTensor* find(std::string_view name) const;

    const ops::OperatorSpec& spec_;
    std::span<const NamedTensor> given_;
    const nlohmann::json& attributes_;
};

}  // namespace afd::calls
