// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace afd::daemon {

// An environment variable of this process, and of those that it starts, while it lives.
class ScopedVariable {
  public:
    ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~ScopedVariable() { ::unsetenv(name_); }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

  private:
    const char* name_;
};

}  // namespace afd::daemon
