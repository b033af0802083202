// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "daemon/exposition/families.h"
#include "daemon/loop/descriptor_limit.h"

namespace afd::daemon {
namespace {

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Words of /proc/self/stat from the third on: the second, the name, may have blanks.
std::vector<double> stat_words() {
    std::ifstream file("/proc/self/stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > line.size()) return {};
    std::istringstream rest(line.substr(name_end + 4));
    std::vector<double> words;
    for (double word = 0; rest >> word;) words.push_back(word);
    return words;
}

double boot_seconds() {
    std::ifstream file("/proc/stat");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
    }
    return 0;
}

}  // namespace

void add_process_families(FamilyList& families) {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    families.counter("process_cpu_seconds_total", "CPU time of afdd itself");
    families.value(seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
    // proc(5): starttime is word 22 of the line, rss 24; the first two are not in the list, and
    // neither is the state.
    const std::vector<double> words = stat_words();
    const bool has_words = words.size() > 20;
    families.gauge("process_resident_memory_bytes", "Resident memory of afdd itself");
    if (has_words) families.value(words[20] * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    families.gauge("process_start_time_seconds", "Start time of afdd, since 1970");
    if (has_words) {
        families.value(boot_seconds() + words[18] / static_cast<double>(::sysconf(_SC_CLK_TCK)));
    }
    families.gauge("process_open_fds", "Files that afdd has open");
    if (const auto num_open = num_open_descriptors()) {
        families.value(static_cast<double>(*num_open));
    }
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    families.gauge("process_max_fds", "Files that afdd may have open");
    families.value(static_cast<double>(files.rlim_cur));
}

}  // namespace afd::daemon
