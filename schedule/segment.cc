// SPDX-License-Identifier: Apache-2.0
#include "schedule/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

#include "proto/failure.h"

// Kernel headers of the oldest supported distribution lack these (Linux 5.14).
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace afd::schedule {

namespace ipc = boost::interprocess;

struct Segment::Mapping {
    std::string name;
    ipc::shared_memory_object object;
    ipc::mapped_region region;
    Access access = Access::kReadOnly;
};

namespace {

constexpr const char* kSharedMemoryDir = "/dev/shm";
constexpr std::string_view kDigits = "0123456789";

uint64_t shared_memory_free_bytes() {
    // Free blocks for an ordinary user, f_bavail: what only root may use is no room for an
    // instance.
    struct statvfs stats {};
    if (::statvfs(kSharedMemoryDir, &stats) != 0) return 0;
    return uint64_t{stats.f_bavail} * stats.f_frsize;
}

Error no_room(const std::string& what, uint64_t size_bytes) {
    return resource_exhausted(
        "{} needs {} bytes but {} has {} free; enlarge it (mount -o remount,size=...) or lower "
        "attention_workers, micro_batches or micro_batch_size",
        with(what, size_bytes, kSharedMemoryDir, shared_memory_free_bytes()));
}

Error error_of(const ipc::interprocess_exception& exception, const std::string& name) {
    const std::string text = "segment " + name + ": " + exception.what();
    switch (exception.get_error_code()) {
        case ipc::already_exists_error:
            return {Code::kAlreadyExists, text};
        case ipc::not_found_error:
            return {Code::kNotFound, text};
        case ipc::security_error:
            return {Code::kPermissionDenied, text};
        case ipc::out_of_memory_error:
        case ipc::out_of_space_error:
            return {Code::kResourceExhausted, text};
        default:
            return {Code::kUnavailable, text};
    }
}

// Reserves the blocks now: a sparse object would end in SIGBUS when /dev/shm is full.
Result<> reserve(int fd, const std::string& name, uint64_t size_bytes) {
    AFD_TRY(check_shared_memory_room("segment " + name, size_bytes));
    int error = EINTR;
    while (error == EINTR) error = ::posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
    if (error == 0) return {};
    if (error == ENOSPC || error == ENOMEM || error == EFBIG) {
        return no_room("segment " + name, size_bytes);
    }
    return unavailable("segment {}: cannot reserve {} bytes: {}",
                       with(name, size_bytes, std::strerror(error)));
}

bool consume(std::string_view& text, std::string_view head) {
    if (text.substr(0, head.size()) != head) return false;
    text.remove_prefix(head.size());
    return true;
}

size_t consume_while(std::string_view& text, std::string_view allowed) {
    const size_t count = std::min(text.find_first_not_of(allowed), text.size());
    text.remove_prefix(count);
    return count;
}

// Whether a file of /dev/shm is a segment of exactly this instance: all of its name is matched,
// because "a" must not claim what belongs to "a-b".
bool is_of_instance(std::string_view file, std::string_view instance) {
    if (!consume(file, "afd-") || !consume(file, instance) || !consume(file, "-")) return false;
    // Exactly sixteen digits tell instance "a" from an instance "a-0123": instance names may hold
    // dashes themselves.
    if (consume_while(file, "0123456789abcdef") != 16 || !consume(file, "-")) return false;
    if (!consume(file, "attn") && !consume(file, "ffn")) return false;
    if (consume_while(file, kDigits) == 0) return false;
    if (consume(file, "-receive") || consume(file, "-return")) {
        return consume_while(file, kDigits) > 0 && consume(file, "r") &&
               consume_while(file, kDigits) > 0 && file.empty();
    }
    return file == "-window" || file == "-control" || file == "-metrics" || file == "-two-phase";
}

}  // namespace

Result<> validate_instance_name(std::string_view instance) {
    constexpr std::string_view kAllowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (!instance.empty() && instance.size() <= 64 && instance[0] != '.' &&
        instance.find_first_not_of(kAllowed) == std::string_view::npos) {
        return {};
    }
    return invalid_argument(
        "instance name '{}' must have 1 to 64 characters of A-Z a-z 0-9 . _ - and not begin with a "
        "dot",
        with(instance));
}

Result<> check_shared_memory_room(const std::string& what, uint64_t size_bytes) {
    if (size_bytes > shared_memory_free_bytes()) return no_room(what, size_bytes);
    return {};
}

std::string segment_prefix(std::string_view instance, uint64_t instance_id) {
    std::string prefix = "/afd-" + std::string(instance) + "-";
    for (int shift = 60; shift >= 0; shift -= 4) {
        prefix += "0123456789abcdef"[(instance_id >> shift) & 15];
    }
    return prefix;
}

std::string segment_name(std::string_view prefix, Role role, uint32_t index, SegmentKind kind) {
    std::string name(prefix);
    name += role == Role::kFfn ? "-ffn" : "-attn";
    name += std::to_string(index);
    switch (kind) {
        case SegmentKind::kWindow:
            return name + "-window";
        case SegmentKind::kControl:
            return name + "-control";
        case SegmentKind::kMetrics:
            return name + "-metrics";
        case SegmentKind::kTwoPhase:
            return name + "-two-phase";
    }
    return name;
}

Result<Segment> Segment::create(const std::string& name, uint64_t size_bytes) {
    auto mapping = std::make_unique<Mapping>();
    mapping->name = name;
    mapping->access = Access::kReadWrite;
    try {
        // Prompts and hidden states are in it, so it is the owner's alone. create_only: a segment
        // that exists belongs to somebody.
        mapping->object = ipc::shared_memory_object(
            ipc::create_only, name.c_str(), ipc::read_write, ipc::permissions(0600));
    } catch (const ipc::interprocess_exception& exception) {
        return error_of(exception, name);
    }
    try {
        const int fd = mapping->object.get_mapping_handle().handle;
        // Reserved before it is mapped: the size is set by the same call, and a mapping beyond the
        // end would fault at its first use.
        if (Result<> reserved = reserve(fd, name, size_bytes); !reserved.ok()) {
            unlink(name);
            return reserved.error();
        }
        mapping->region = ipc::mapped_region(mapping->object, ipc::read_write, 0, size_bytes);
    } catch (const ipc::interprocess_exception& exception) {
        unlink(name);
        return error_of(exception, name);
    }
    return Segment(std::move(mapping));
}

Result<Segment> Segment::attach(const std::string& name, uint64_t size_bytes, Access access) {
    auto mapping = std::make_unique<Mapping>();
    mapping->name = name;
    mapping->access = access;
    const ipc::mode_t mode = access == Access::kReadWrite ? ipc::read_write : ipc::read_only;
    try {
        mapping->object = ipc::shared_memory_object(ipc::open_only, name.c_str(), mode);
        ipc::offset_t found_bytes = 0;
        // A segment that is too short would end in SIGBUS in the middle of a round.
        if (!mapping->object.get_size(found_bytes) ||
            static_cast<uint64_t>(found_bytes) != size_bytes) {
            return failed_precondition(
                "segment {} has {} bytes but this process expects {}; start both sides from one "
                "configuration",
                with(name, found_bytes, size_bytes));
        }
        mapping->region = ipc::mapped_region(mapping->object, mode, 0, size_bytes);
    } catch (const ipc::interprocess_exception& exception) {
        return error_of(exception, name);
    }
    return Segment(std::move(mapping));
}

bool Segment::unlink(const std::string& name) {
    return ipc::shared_memory_object::remove(name.c_str());
}

size_t Segment::remove_leftovers(std::string_view instance) {
    std::vector<std::string> names;
    if (DIR* dir = ::opendir(kSharedMemoryDir)) {
        while (const dirent* entry = ::readdir(dir)) {
            if (is_of_instance(entry->d_name, instance)) {
                names.push_back(std::string("/") + entry->d_name);
            }
        }
        ::closedir(dir);
    }
    return static_cast<size_t>(std::count_if(names.begin(), names.end(), &Segment::unlink));
}

Segment::Segment() = default;
Segment::Segment(Segment&& other) noexcept = default;
Segment& Segment::operator=(Segment&& other) noexcept = default;
Segment::~Segment() = default;
Segment::Segment(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

Result<> Segment::prefault(uint64_t offset, uint64_t bytes) const {
    AFD_ASSERT(offset <= size() && bytes <= size() - offset,
               "range %llu + %llu of a segment of %llu bytes",
               static_cast<unsigned long long>(offset),
               static_cast<unsigned long long>(bytes),
               static_cast<unsigned long long>(size()));
    const uint64_t page_bytes = ipc::mapped_region::get_page_size();
    // Rounded down: madvise takes whole pages, and stripes do not begin on one.
    const uint64_t begin = offset / page_bytes * page_bytes;
    const uint64_t length = offset + bytes - begin;
    std::byte* address = static_cast<std::byte*>(mapping_->region.get_address()) + begin;
    // Populated now, since promise 5 forbids a page fault in the steady state; a read of an
    // untouched page would map it read-only and fault again at the first store.
    const int advice =
        mapping_->access == Access::kReadWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    int result = -1;
    do {
        result = ::madvise(address, length, advice);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    if (result == 0) return {};
    if (errno != EINVAL) {
        return resource_exhausted("segment {}: cannot prefault {} bytes: {}",
                                  with(mapping_->name, bytes, std::strerror(errno)));
    }
    // A kernel before 5.14: read one byte of each page. The first store then still faults once.
    for (uint64_t at = 0; at < length; at += page_bytes) {
        // Relaxed: only the page fault is wanted, the value pairs with nothing.
        std::atomic_ref<std::byte>(address[at]).load(std::memory_order_relaxed);
    }
    return {};
}

std::byte* Segment::data() const {
    AFD_ASSERT(mapping_ && mapping_->access == Access::kReadWrite,
               "writable address of a segment that is not mapped read-write");
    return static_cast<std::byte*>(mapping_->region.get_address());
}

const std::byte* Segment::const_data() const {
    AFD_ASSERT(mapping_, "address of an empty segment");
    return static_cast<const std::byte*>(mapping_->region.get_address());
}

uint64_t Segment::size() const {
    return mapping_ ? mapping_->region.get_size() : 0;
}

const std::string& Segment::name() const {
    AFD_ASSERT(mapping_, "name of an empty segment");
    return mapping_->name;
}

}  // namespace afd::schedule
