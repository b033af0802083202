// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModuleFilter: the modules ("model.layers.3.mlp.experts.7.gate_proj") that a list of a
// quantization_config names, as compressed-tensors reads it: by their whole names, or by "re:" and
// a regular expression that matches from a name's first character on.
//
// What is no text, or no expression that PCRE2 takes or is done with soon, names nothing, nor does
// any expression after many names: such a list only foretells what the tensors then say
// (model/family/expert_formats.h).

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace afd::model {

// Expressions are tried on names this often, which takes seconds: 238 on all experts of Kimi-K2.
inline constexpr uint64_t kModuleMatchesMax = uint64_t{1} << 24;

class ModuleFilter {
  public:
    explicit ModuleFilter(const nlohmann::json& list, uint64_t matches_max = kModuleMatchesMax);
    ModuleFilter(ModuleFilter&&) noexcept;
    ~ModuleFilter();

    // Whether it names nothing at all.
    bool is_empty() const;

    // For one thread at a time.
    bool names(const std::string& module) const;

  private:
    class Expression;
    struct Impl;

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
