// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/crash_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "proto/check.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "AFD_CRASH_POINTS";

void find_names(const fs::path& file, std::vector<std::string>& names) {
    std::ifstream stream(file);
    std::stringstream buffer;
    buffer << stream.rdbuf();
    const std::string text = buffer.str();
    static const std::regex point("AFD_CRASH_POINT(?:_OF)?\\(\\s*\"([^\"]+)\"\\s*(?:,|\\);)");
    for (std::sregex_iterator at(text.begin(), text.end(), point), end; at != end; ++at) {
        names.push_back((*at)[1]);
    }
}

std::vector<std::string> names_in_tree() {
    std::vector<std::string> names;
    for (const char* folder : {"daemon", "model", "ops", "schedule", "threads"}) {
        for (const auto& entry :
             fs::recursive_directory_iterator(fs::path(AFD_SOURCE_DIR) / folder)) {
            if (entry.path().extension() == ".cc") find_names(entry.path(), names);
        }
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    EXPECT_EQ(twice, names.end()) << *twice << " stands twice";
    return names;
}

}  // namespace

CrashTable::CrashTable() : names_(names_in_tree()) {
    AFD_ASSERT(names_.size() <= kCrashEntriesMax, "%zu points", names_.size());
    const std::string path = make_directory() + "/crash_points";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AFD_ASSERT(fd >= 0 && ftruncate(fd, kCrashTableBytes) == 0, "cannot make %s", path.c_str());
    void* mapped = mmap(nullptr, kCrashTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    AFD_ASSERT(mapped != MAP_FAILED, "cannot map %s", path.c_str());
    close(fd);
    entries_ = static_cast<CrashEntry*>(mapped);
    for (size_t i = 0; i < names_.size(); ++i) {
        AFD_ASSERT(names_[i].size() < CrashEntry::kNameMax, "%s is too long", names_[i].c_str());
        std::memcpy(entries_[i].name, names_[i].c_str(), names_[i].size() + 1);
    }
    setenv(kVariable, path.c_str(), 1);
}

CrashTable::~CrashTable() {
    unsetenv(kVariable);
    munmap(entries_, kCrashTableBytes);
}

void CrashTable::arm(const std::string& name, uint64_t hit, uint64_t times) {
    CrashEntry& point = entry(name);
    point.again = times - 1;
    point.left = static_cast<int64_t>(hit);
}

void CrashTable::arm_for(const std::string& name, uint64_t value, int signal, uint64_t times) {
    CrashEntry& point = entry(name);
    point.only = value + 1;
    point.signal = signal;
    arm(name, 1, times);
}

void CrashTable::disarm_all() {
    for (size_t i = 0; i < names_.size(); ++i) {
        entries_[i].left = 0;
        entries_[i].again = 0;
        entries_[i].only = 0;
        entries_[i].signal = 0;
    }
}

CrashEntry& CrashTable::entry(const std::string& name) const {
    const auto found = std::lower_bound(names_.begin(), names_.end(), name);
    AFD_ASSERT(found != names_.end() && *found == name, "no point '%s'", name.c_str());
    return entries_[found - names_.begin()];
}

}  // namespace afd::test
