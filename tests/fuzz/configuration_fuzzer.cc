// SPDX-License-Identifier: Apache-2.0
//
// A configuration file. Input: its text. Oracle: what is accepted is accepted again as
// describe_config() writes it, and is then written the same.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "daemon/options/resolved_config.h"
#include "proto/check.h"

namespace {

// A file that exists for this process only.
class MemoryFile {
  public:
    MemoryFile() : fd_(::memfd_create("config", MFD_CLOEXEC)) {
        AFD_ASSERT(fd_ >= 0 && ::fchmod(fd_, 0600) == 0, "no memory file");
    }
    ~MemoryFile() { ::close(fd_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
    void set(std::string_view text) const {
        const auto size = static_cast<ssize_t>(text.size());
        AFD_ASSERT(::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) == size,
                   "cannot write %zd bytes",
                   size);
    }

  private:
    const int fd_;
};

// Without the origins, which say where a value came from.
std::string values_of(const afd::daemon::ResolvedConfig& resolved) {
    std::string values;
    for (const auto& [name, origin] : resolved.origins) values += name + "\n";
    afd::daemon::ResolvedConfig plain = resolved;
    for (auto& [name, origin] : plain.origins) origin = "here";
    plain.config_file.clear();
    return values + afd::daemon::describe_config(plain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const MemoryFile file;
    afd::daemon::ConfigSources sources;
    sources.config_file = file.path();
    file.set({reinterpret_cast<const char*>(data), size});
    const auto first = afd::daemon::resolve_config(sources);
    if (!first.ok()) return 0;
    file.set(afd::daemon::describe_config(first.value()));
    const auto second = afd::daemon::resolve_config(sources);
    AFD_ASSERT(second.ok(), "refused on second thoughts: %s", second.error().message.c_str());
    AFD_ASSERT(values_of(first.value()) == values_of(second.value()), "other values");
    return 0;
}
