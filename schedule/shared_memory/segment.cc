// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "proto/failure.h"
#include "schedule/shared_memory/memory_room.h"

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
    Mapping() = default;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (descriptor >= 0) ::close(descriptor);
    }

    std::string name;
    ipc::shared_memory_object object;  // Of a named segment.
    int descriptor = -1;               // Of a sealed one that was created here.
    ipc::mapped_region region;
    Access access = Access::kReadOnly;
};

namespace {

constexpr const char* kSharedMemoryDir = "/dev/shm";
// Neither shortened nor lengthened, and no seal added: a seal against writing would end a worker.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

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
    int error = EINTR;
    while (error == EINTR) error = ::posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
    if (error == 0) return {};
    if (error == ENOSPC || error == ENOMEM || error == EFBIG) {
        return no_room("segment " + name, size_bytes);
    }
    return unavailable("segment {}: cannot reserve {} bytes: {}",
                       with(name, size_bytes, std::strerror(error)));
}

// A descriptor, as Boost's mapped_region takes what it maps.
class MappableDescriptor {
  public:
    explicit MappableDescriptor(int descriptor) : descriptor_(descriptor) {}
    ipc::mapping_handle_t get_mapping_handle() const {
        return ipc::ipcdetail::mapping_handle_from_file_handle(descriptor_);
    }

  private:
    const int descriptor_;
};

Error system_error(const std::string& name, const char* what) {
    const std::string text = "segment " + name + ": " + what + ": " + std::strerror(errno);
    switch (errno) {
        case ENOENT:
            return {Code::kNotFound, text};
        case EEXIST:
            return {Code::kAlreadyExists, text};
        case EACCES:
        case EPERM:
            return {Code::kPermissionDenied, text};
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case ENOSPC:
            return {Code::kResourceExhausted, text};
        default:
            return {Code::kUnavailable, text};
    }
}

// "/memfd:<name> (deleted)", as the kernel shows a memory file; its name has no slash.
std::string memory_file_link(std::string_view name) {
    return "/memfd:" + std::string(name.substr(1)) + " (deleted)";
}

std::string read_link(const std::string& path) {
    std::array<char, 512> text;
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    return size < 0 ? std::string() : std::string(text.data(), static_cast<size_t>(size));
}

// A segment that is too short would end in SIGBUS in the middle of a round.
Result<> check_size(int fd, const std::string& name, uint64_t size_bytes) {
    struct stat stats {};
    if (::fstat(fd, &stats) != 0) return system_error(name, "cannot look at it");
    if (static_cast<uint64_t>(stats.st_size) == size_bytes) return {};
    return failed_precondition(
        "segment {} has {} bytes but this process expects {}; start both sides from one "
        "configuration",
        with(name, stats.st_size, size_bytes));
}

// What was reached through a link, or was handed over, must be what afdd makes.
Result<> check_sealed(int fd, const std::string& name) {
    struct stat stats {};
    if (::fstat(fd, &stats) != 0) return system_error(name, "cannot look at it");
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (stats.st_uid == ::geteuid() && seals >= 0 && (seals & kSeals) == kSeals) return {};
    return Error{Code::kPermissionDenied,
                 "segment " + name +
                     " is no sealed memory file of this user: it could be "
                     "shortened while it is in use"};
}

std::vector<std::string> names_of(std::string_view instance) {
    std::vector<std::string> names;
    if (DIR* dir = ::opendir(kSharedMemoryDir)) {
        while (const dirent* entry = ::readdir(dir)) {
            if (is_segment_of(entry->d_name, instance)) {
                names.push_back(std::string("/") + entry->d_name);
            }
        }
        ::closedir(dir);
    }
    return names;
}

}  // namespace

Result<> check_shared_memory_room(const std::string& what, uint64_t size_bytes) {
    if (size_bytes > shared_memory_free_bytes()) return no_room(what, size_bytes);
    return {};
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
        if (Result<> room = check_shared_memory_room("segment " + name, size_bytes); !room.ok()) {
            unlink(name);
            return room.error();
        }
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

Result<Segment> Segment::create_unnamed(const std::string& name, uint64_t size_bytes) {
    AFD_TRY(check_memory_room("segment " + name, size_bytes, "end what else uses memory"));
    auto mapping = std::make_unique<Mapping>();
    mapping->name = name;
    mapping->access = Access::kReadWrite;
    const int fd = ::memfd_create(name.c_str() + 1, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return system_error(name, "cannot be created");
    mapping->descriptor = fd;
    if (::fchmod(fd, 0600) != 0) return system_error(name, "cannot be made the owner's alone");
    AFD_TRY(reserve(fd, name, size_bytes));
    if (::fcntl(fd, F_ADD_SEALS, kSeals) != 0) return system_error(name, "cannot be sealed");
    try {
        mapping->region =
            ipc::mapped_region(MappableDescriptor(fd), ipc::read_write, 0, size_bytes);
    } catch (const ipc::interprocess_exception& exception) {
        return error_of(exception, name);
    }
    return Segment(std::move(mapping));
}

Result<Segment> Segment::create_sealed(const std::string& name, uint64_t size_bytes) {
    AFD_ASSIGN(Segment made, create_unnamed(name, size_bytes));
    // The name last: whoever finds it finds the whole segment.
    const std::string target =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(made.descriptor());
    if (::symlink(target.c_str(), (kSharedMemoryDir + name).c_str()) != 0) {
        return system_error(name, "cannot get its name in /dev/shm");
    }
    return made;
}

Result<Segment> Segment::attach(const std::string& name, uint64_t size_bytes, Access access) {
    const std::string path = kSharedMemoryDir + name;
    const int flags = O_CLOEXEC | (access == Access::kReadWrite ? O_RDWR : O_RDONLY);
    int fd = ::open(path.c_str(), flags | O_NOFOLLOW);
    const bool is_link = fd < 0 && errno == ELOOP;
    if (is_link) fd = ::open(path.c_str(), flags);
    if (fd < 0) return system_error(name, "cannot be opened");
    Result<Segment> attached = Error{};
    Result<> is_good = is_link ? check_sealed(fd, name) : Result<>();
    if (is_good.ok()) attached = map(fd, name, size_bytes, access);
    ::close(fd);
    if (!is_good.ok()) return is_good.error();
    return attached;
}

Result<Segment> Segment::attach(int descriptor,
                                const std::string& name,
                                uint64_t size_bytes,
                                Access access) {
    AFD_TRY(check_sealed(descriptor, name));
    return map(descriptor, name, size_bytes, access);
}

Result<Segment> Segment::map(int descriptor,
                             const std::string& name,
                             uint64_t size_bytes,
                             Access access) {
    AFD_TRY(check_size(descriptor, name, size_bytes));
    auto mapping = std::make_unique<Mapping>();
    mapping->name = name;
    mapping->access = access;
    try {
        mapping->region =
            ipc::mapped_region(MappableDescriptor(descriptor),
                               access == Access::kReadWrite ? ipc::read_write : ipc::read_only,
                               0,
                               size_bytes);
    } catch (const ipc::interprocess_exception& exception) {
        return error_of(exception, name);
    }
    return Segment(std::move(mapping));
}

bool Segment::unlink(const std::string& name) {
    return ipc::shared_memory_object::remove(name.c_str());
}

size_t Segment::remove_leftovers(std::string_view instance) {
    const std::vector<std::string> names = names_of(instance);
    return static_cast<size_t>(std::count_if(names.begin(), names.end(), &Segment::unlink));
}

std::optional<int> Segment::find_owner(std::string_view instance) {
    for (const std::string& name : names_of(instance)) {
        const std::string target = read_link(kSharedMemoryDir + name);
        int pid = 0;
        // A number may have come to another process since: what it has open must be this segment.
        if (std::sscanf(target.c_str(), "/proc/%d/", &pid) == 1 &&
            read_link(target) == memory_file_link(name)) {
            return pid;
        }
    }
    return std::nullopt;
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

int Segment::descriptor() const {
    return mapping_ ? mapping_->descriptor : -1;
}

const std::string& Segment::name() const {
    AFD_ASSERT(mapping_, "name of an empty segment");
    return mapping_->name;
}

}  // namespace afd::schedule
