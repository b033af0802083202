// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScopedVariable: what the environment says while a test looks.

#include <cstdlib>
#include <optional>
#include <string>

namespace afd::daemon {

// An environment variable of this process, and of those that it starts, while it lives. Null:
// there is none.
class ScopedVariable {
  public:
    ScopedVariable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        if (value != nullptr) {
            ::setenv(name, value, 1);
        } else {
            ::unsetenv(name);
        }
    }
    ~ScopedVariable() {
        if (before_.has_value()) {
            ::setenv(name_, before_->c_str(), 1);
        } else {
            ::unsetenv(name_);
        }
    }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace afd::daemon
