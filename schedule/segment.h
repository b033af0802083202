// SPDX-License-Identifier: Apache-2.0
#pragma once

// Segment: one POSIX shared-memory object, mapped. Boost.Interprocess underneath; none of its
// synchronisation is used.
//
// afdd creates every segment before it starts a worker and unlinks it at the end; workers only
// attach. So a crashed worker never takes memory with it, and its successor finds its windows as
// they were. The memory of a two-phase round is an exception: afdd makes and unlinks it on request.
//
// Names are <prefix>-<kind>, with prefix = "/afd-<instance>-<16 hex digits>".

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/status.h"
#include "schedule/segment_header.h"

namespace afd::schedule {

enum class SegmentKind { kWindow, kControl, kMetrics, kTwoPhase };

// 1 to 64 characters of [A-Za-z0-9._-], the first not a dot.
// Errors: kInvalidArgument.
Result<> validate_instance_name(std::string_view instance);

// "/afd-<instance>-<16 hex digits of instance_id>".
std::string segment_prefix(std::string_view instance, uint64_t instance_id);

// "<prefix>-ffn<index>-window", "<prefix>-attn<index>-control", ...
std::string segment_name(std::string_view prefix, Role role, uint32_t index, SegmentKind kind);

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

    // Maps an existing object; with kReadOnly the kernel refuses stores.
    // Errors: kNotFound; kFailedPrecondition if its size is not `size_bytes`; kPermissionDenied.
    static Result<Segment> attach(const std::string& name, uint64_t size_bytes, Access access);

    // Removes the name; mappings live on. Returns whether it existed.
    static bool unlink(const std::string& name);

    // Removes every segment of exactly this instance name, whatever its random part, and of no
    // other (an instance "a" leaves those of "a-b" alone). Returns how many.
    // REQUIRES: the caller holds the instance: no afdd of this name is alive.
    static size_t remove_leftovers(std::string_view instance);

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

  private:
    struct Mapping;
    explicit Segment(std::unique_ptr<Mapping> mapping);

    std::unique_ptr<Mapping> mapping_;
};

}  // namespace afd::schedule
