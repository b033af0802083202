// SPDX-License-Identifier: Apache-2.0
#pragma once

// Segment: shared memory, mapped. Boost.Interprocess underneath; none of its synchronisation is
// used. Of two kinds:
//
//   sealed   a memory file (memfd) that nobody can shorten or lengthen, not even its creator. It
//            lives as long as a descriptor or mapping of it. Its name in /dev/shm is a link to the
//            creator's descriptor (/proc/<pid>/fd/<n>), for tools: the memory does not depend on
//            it. What afdd makes.
//   named    a POSIX shared-memory object, which lives until it is unlinked. For whoever brings
//            operators together without afdd.
//
// afdd creates every segment before it starts a worker and keeps it to its end; workers only
// attach, by descriptors that afdd hands them. So a crashed worker never takes memory with it, its
// successor finds its windows as they were, and no name that is lost and no file that is shortened
// can harm an instance that lives (docs/security.md). The memory of a two-phase round is made,
// handed over and given back on request.
//
// How they are named: segment_name.h.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proto/status.h"
#include "schedule/shared_memory/segment_name.h"

namespace afd::schedule {

// Whether /dev/shm has room for `size_bytes` more; `what` needs them.
// Errors: kResourceExhausted, naming what, the bytes and what is free.
Result<> check_shared_memory_room(const std::string& what, uint64_t size_bytes);

class Segment {
  public:
    enum class Access { kReadOnly, kReadWrite };

    // Creates an object that must not exist, mode 0600, zeroed, its memory reserved, and maps it
    // read-write. Nothing of it remains after an error.
    // Errors: kAlreadyExists; kResourceExhausted, naming the size and what /dev/shm has free;
    // kPermissionDenied; kUnavailable with the system's words for the rest.
    static Result<Segment> create(const std::string& name, uint64_t size_bytes);

    // Creates a sealed segment, mode 0600, zeroed, its memory reserved, maps it read-write and
    // enters its name, which must not exist. Nothing of it remains after an error.
    // Errors: as create(), but kResourceExhausted names the memory that the machine has available;
    // that is also for want of descriptors.
    static Result<Segment> create_sealed(const std::string& name, uint64_t size_bytes);

    // The same without entering the name, which is for messages: whoever is to map it is handed
    // its descriptor.
    static Result<Segment> create_unnamed(const std::string& name, uint64_t size_bytes);

    // Maps an existing segment of either kind by its name; with kReadOnly the kernel refuses
    // stores. A link is followed only to a sealed segment of this user.
    // Errors: kNotFound; kFailedPrecondition if its size is not `size_bytes`; kPermissionDenied;
    // kResourceExhausted (descriptors); kUnavailable with the system's words for the rest.
    static Result<Segment> attach(const std::string& name, uint64_t size_bytes, Access access);

    // Maps the sealed segment of a descriptor, which stays the caller's; `name` is for messages.
    // Errors: as attach(); kPermissionDenied if it could be shortened.
    static Result<Segment> attach(int descriptor,
                                  const std::string& name,
                                  uint64_t size_bytes,
                                  Access access);

    // Removes the name; mappings live on, and so does a sealed segment. Returns whether it existed.
    static bool unlink(const std::string& name);

    // Removes every segment of exactly this instance name, whatever its random part, and of no
    // other (an instance "a" leaves those of "a-b" alone). Returns how many.
    // REQUIRES: the caller holds the instance: no afdd of this name is alive.
    static size_t remove_leftovers(std::string_view instance);

    // The process that has sealed segments of exactly this instance name open under their names:
    // an afdd that lives, whatever became of its lock file.
    static std::optional<int> find_owner(std::string_view instance);

    Segment();
    Segment(Segment&& other) noexcept;
    Segment& operator=(Segment&& other) noexcept;
    ~Segment();  // Unmaps; never unlinks.

    // Enters [offset, offset + bytes) into the page tables without storing, so that no first
    // touch happens while serving.
    // Errors: kResourceExhausted.
    Result<> prefault(uint64_t offset, uint64_t bytes) const;

    // REQUIRES of data(): attached kReadWrite or created. const_data() serves both.
    std::byte* data() const;
    const std::byte* const_data() const;
    uint64_t size() const;
    const std::string& name() const;
    // Of a sealed segment that this object created; good as long as the object. Else -1.
    int descriptor() const;

  private:
    struct Mapping;
    explicit Segment(std::unique_ptr<Mapping> mapping);
    static Result<Segment> map(int descriptor,
                               const std::string& name,
                               uint64_t size_bytes,
                               Access access);

    std::unique_ptr<Mapping> mapping_;
};

}  // namespace afd::schedule
