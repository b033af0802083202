// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModuleFilter: the modules ("model.layers.3.mlp.experts.7.gate_proj") that a list of a
// quantization_config names, as compressed-tensors reads it: by their whole names, or by "re:" and
// a regular expression that matches from a name's first character on.
//
// What is no text, or no expression that PCRE2 takes or is done with soon, names nothing: such a
// list only foretells what the tensors then say (model/family/expert_formats.h).

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace afd::model {

class ModuleFilter {
  public:
    explicit ModuleFilter(const nlohmann::json& list);
    ModuleFilter(ModuleFilter&&) noexcept;
    ~ModuleFilter();

    // For one thread at a time.
    bool names(const std::string& module) const;

  private:
    class Expression;
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
