// SPDX-License-Identifier: Apache-2.0
#pragma once

// CrashTable: a test's hand on the crash points (proto/crash_point.h) of the programs that it
// starts. It has all points of the tree, found in the sources.

#include <string>
#include <vector>

#include "proto/crash_point.h"

namespace afd::test {

class CrashTable {
  public:
    // Makes the file, and names it in this process's environment until the object ends: programs
    // that are started meanwhile go by it.
    CrashTable();
    ~CrashTable();
    CrashTable(const CrashTable&) = delete;
    CrashTable& operator=(const CrashTable&) = delete;

    // All points of the tree, ascending. Fails the test if a name stands twice.
    const std::vector<std::string>& names() const { return names_; }

    // Whoever reaches the point for the `hit`th time from now dies there, and whoever reaches it
    // next likewise, until `times` have died.
    void arm(const std::string& name, uint64_t hit = 1, uint64_t times = 1);
    // Whoever reaches the point with this value dies of it, by this signal, until `times` have.
    void arm_for(const std::string& name, uint64_t value, int signal, uint64_t times);
    void disarm_all();

    // All since the object was made.
    uint64_t hits(const std::string& name) const { return entry(name).hits; }
    uint64_t deaths(const std::string& name) const { return entry(name).deaths; }
    // Who reached it last; 0: nobody.
    pid_t last_pid(const std::string& name) const { return entry(name).pid; }

  private:
    CrashEntry& entry(const std::string& name) const;

    std::vector<std::string> names_;
    CrashEntry* entries_ = nullptr;
};

}  // namespace afd::test
