// SPDX-License-Identifier: Apache-2.0
#include "model/family/module_filter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace afd::model {

class ModuleFilter::Expression {
  public:
    explicit Expression(std::string_view pattern) {
        // A name is short: who needs more steps would keep the program from starting.
        const std::string limited = "(*LIMIT_MATCH=10000)" + std::string(pattern);
        int error = 0;
        PCRE2_SIZE at = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(limited.data()),
                                  limited.size(),
                                  PCRE2_ANCHORED,
                                  &error,
                                  &at,
                                  nullptr));
        if (!code_) return;
        // Where there is no JIT the interpreter takes its place; names are tens of thousands.
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
        data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    }

    bool matches(std::string_view text) const {
        if (!code_ || !data_) return false;
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        return pcre2_match(code_.get(), subject, text.size(), 0, 0, data_.get(), nullptr) >= 0;
    }

  private:
    struct CodeFree {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };
    struct DataFree {
        void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    };

    std::unique_ptr<pcre2_code, CodeFree> code_;
    std::unique_ptr<pcre2_match_data, DataFree> data_;
};

struct ModuleFilter::Impl {
    std::unordered_set<std::string> names;
    std::vector<Expression> expressions;
    uint64_t matches_left;
};

ModuleFilter::ModuleFilter(const nlohmann::json& list, uint64_t matches_max)
    : impl_(std::make_unique<Impl>()) {
    impl_->matches_left = matches_max;
    constexpr std::string_view kExpression = "re:";
    if (!list.is_array()) return;
    for (const nlohmann::json& entry : list) {
        if (!entry.is_string()) continue;
        const auto& text = entry.get_ref<const std::string&>();
        if (text.starts_with(kExpression)) {
            impl_->expressions.emplace_back(std::string_view(text).substr(kExpression.size()));
        } else {
            impl_->names.insert(text);
        }
    }
}

ModuleFilter::ModuleFilter(ModuleFilter&&) noexcept = default;
ModuleFilter::~ModuleFilter() = default;

bool ModuleFilter::is_empty() const {
    return impl_->names.empty() && impl_->expressions.empty();
}

bool ModuleFilter::names(const std::string& module) const {
    if (impl_->names.contains(module)) return true;
    for (const Expression& expression : impl_->expressions) {
        if (impl_->matches_left == 0) return false;
        --impl_->matches_left;
        if (expression.matches(module)) return true;
    }
    return false;
}

}  // namespace afd::model
