// SPDX-License-Identifier: Apache-2.0
#include "daemon/worker/vocabulary_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/failure.h"
#include "proto/write_all.h"

namespace afd::daemon {
namespace {

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

Error vocabulary_error(const std::string& name, const char* what) {
    const bool is_short = errno == ENOMEM || errno == ENOSPC || errno == EMFILE || errno == ENFILE;
    return {is_short ? Code::kResourceExhausted : Code::kUnavailable,
            "vocabulary " + name + ": " + what + ": " + std::strerror(errno)};
}

}  // namespace

std::string vocabulary_name(std::string_view segment_prefix) {
    return std::string(segment_prefix) + "-vocabulary";
}

Result<UniqueFd> create_vocabulary_file(const std::string& name,
                                        const model::VocabularyTrie& trie) {
    UniqueFd fd(::memfd_create(name.c_str() + 1, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return vocabulary_error(name, "cannot be created");
    if (::fchmod(fd.get(), 0600) != 0) {
        return vocabulary_error(name, "cannot be made the owner's alone");
    }
    if (!write_all(fd.get(), trie.image())) return vocabulary_error(name, "cannot be written");
    if (::fcntl(fd.get(), F_ADD_SEALS, kAllSeals) != 0) {
        return vocabulary_error(name, "cannot be sealed");
    }
    return fd;
}

Result<std::shared_ptr<const model::VocabularyTrie>> read_vocabulary_file(int descriptor,
                                                                          const std::string& name) {
    struct stat stats {};
    if (::fstat(descriptor, &stats) != 0) return vocabulary_error(name, "cannot look at it");
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    if (stats.st_uid != ::geteuid() || seals < 0 || (seals & kAllSeals) != kAllSeals) {
        return Error{Code::kPermissionDenied,
                     "vocabulary " + name +
                         " is no sealed memory file of this user: it could be changed while it is "
                         "in use"};
    }
    const auto size = static_cast<size_t>(stats.st_size);
    if (size == 0) return data_loss("vocabulary {} is empty", with(name));
    // Private: a shared mapping of a file that is sealed against writing is refused by kernels
    // before 6.7 where its descriptor could write.
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED) return vocabulary_error(name, "cannot be mapped");
    std::shared_ptr<const void> owner(memory, [size](void* mapped) { ::munmap(mapped, size); });
    const std::span image(static_cast<const std::byte*>(memory), size);
    AFD_ASSIGN(model::VocabularyTrie trie, model::VocabularyTrie::read(image, std::move(owner)));
    return std::make_shared<const model::VocabularyTrie>(std::move(trie));
}

Result<std::shared_ptr<const model::VocabularyTrie>> open_vocabulary(const WorkerControl& control,
                                                                     uint32_t vocab_size) {
    const std::string name = vocabulary_name(control.welcome().segment_prefix());
    const auto found = control.segment_fds().find(name);
    if (found == control.segment_fds().end()) {
        return std::shared_ptr<const model::VocabularyTrie>();
    }
    AFD_ASSIGN(auto vocabulary, read_vocabulary_file(found->second, name));
    if (vocabulary->vocab_size() == vocab_size) return vocabulary;
    return failed_precondition("vocabulary {} has {} tokens, and the model {}; restart afdd",
                               with(name, vocabulary->vocab_size(), vocab_size));
}

}  // namespace afd::daemon
