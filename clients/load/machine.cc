// SPDX-License-Identifier: Apache-2.0
#include "clients/load/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace afd::client {

Machine this_machine() {
    Machine machine;
    machine.cpu_model = "unknown";
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (!line.starts_with("model name")) continue;
        if (const size_t colon = line.find(": "); colon != std::string::npos) {
            machine.cpu_model = line.substr(colon + 2);
        }
        break;
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
        machine.num_cores = static_cast<unsigned>(CPU_COUNT(&cores));
    }
    machine.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    utsname name = {};
    if (uname(&name) == 0) machine.kernel = std::string(name.sysname) + " " + name.release;
    return machine;
}

}  // namespace afd::client
