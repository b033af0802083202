// SPDX-License-Identifier: Apache-2.0
#include "model/weight_cache/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "model/safetensors/file_error.h"
#include "proto/failure.h"

// Kernel headers of the oldest supported distribution lack it (Linux 5.14).
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace afd::model {
namespace {

constexpr std::array<char, 8> kMagic = {'A', 'F', 'D', 'S', 'E', 'A', 'L', '\n'};
constexpr uint32_t kVersion = 2;
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kKeyBytesMax = 4096;

struct FixedHeader {
    std::array<char, 8> magic = kMagic;
    uint32_t version = kVersion;
    uint32_t byte_order = kByteOrder;
    uint64_t header_bytes = 0;
    uint64_t file_bytes = 0;
    uint64_t num_blocks = 0;
    uint64_t key_bytes = 0;
    uint64_t checksum = 0;  // Of the header with this field 0.
};
static_assert(sizeof(FixedHeader) == 56);

struct BlockRow {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
};

uint64_t aligned(uint64_t bytes) {
    return (bytes + kSealedBlockAlignment - 1) / kSealedBlockAlignment * kSealedBlockAlignment;
}

uint64_t header_size(size_t num_blocks, size_t key_bytes) {
    return sizeof(FixedHeader) + num_blocks * sizeof(BlockRow) + key_bytes;
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

std::vector<std::byte> compose_header(FixedHeader fixed,
                                      std::span<const BlockRow> rows,
                                      const std::string& key) {
    std::vector<std::byte> bytes;
    const auto append = [&bytes](std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
    };
    fixed.checksum = 0;
    append(bytes_of(fixed));
    append(std::as_bytes(rows));
    append(std::as_bytes(std::span(key)));
    fixed.checksum = Checksum::of(bytes);
    std::memcpy(bytes.data(), &fixed, sizeof fixed);
    return bytes;
}

// Of the header as mapped, with its checksum field taken as 0.
uint64_t header_checksum(std::span<const std::byte> header) {
    std::vector<std::byte> copy(header.begin(), header.end());
    std::memset(copy.data() + offsetof(FixedHeader, checksum), 0, sizeof(uint64_t));
    return Checksum::of(copy);
}

// Maps the whole file where the kernel can use pages of 2 MiB, and asks for them: experts stream
// through once a step, and pages of 4 KiB cost up to a third of the bandwidth.
// Measured on Zen 4 with a file of 256 MiB on ext4: 29 GB/s with this mapping, 21 GB/s without.
// So nobody asks for what is needed soon (MADV_WILLNEED): that reads small pages, which stay. A
// touch reads a huge page and begins with the next one: 2.1 GB/s from a disk on which 128 MiB that
// were asked for ahead came at 1.6 to 1.7.
void* map_aligned(int fd, size_t size) {
    constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
    const size_t reserved = size + kHugePage;
    void* room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return MAP_FAILED;
    const auto first = reinterpret_cast<uintptr_t>(room);
    const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage;
    void* data =
        ::mmap(reinterpret_cast<void*>(begin), size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    const int error = errno;
    if (data == MAP_FAILED) {
        ::munmap(room, reserved);
        errno = error;
        return MAP_FAILED;
    }
    const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const uintptr_t end = (begin + size + page - 1) / page * page;
    if (begin > first) ::munmap(room, begin - first);
    if (first + reserved > end) ::munmap(reinterpret_cast<void*>(end), first + reserved - end);
    // Whether it helps depends on the file system: a refusal costs only speed.
    ::madvise(data, size, MADV_HUGEPAGE);
    return data;
}

constexpr const char* kCannotBeRead = "cannot be read: the disk fails, or the file was cut short";

// Brings mapped bytes into memory, in huge pages as a touch does. False: a touch would be a SIGBUS.
// What else the kernel may say is nothing about the file (it is older than 5.14, it has no memory);
// a touch then shows the rest.
// On two busy cores of an EPYC, blocks of 11 MiB that were touched at once came from the disk at
// 2.7 GB/s, these at 2.4, also in pieces of 2 MiB. From memory there was no difference.
bool can_be_read(std::span<const std::byte> bytes) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t begin = first / page * page;
    const size_t count = first + bytes.size() - begin;
    if (::madvise(reinterpret_cast<void*>(begin), count, MADV_POPULATE_READ) == 0) return true;
    return errno != EFAULT && errno != EHWPOISON;
}

}  // namespace

SealedFile::SealedFile(SealedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      blocks_(std::move(other.blocks_)) {}

SealedFile& SealedFile::operator=(SealedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(blocks_, other.blocks_);
    return *this;
}

SealedFile::~SealedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    if (fd_ >= 0) ::close(fd_);
}

bool SealedFile::is_condemned(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           (status.st_mode & S_IRUSR) == 0;
}

Result<SealedFile> SealedFile::open(const std::string& path,
                                    const std::string& key,
                                    std::span<const size_t> block_bytes) {
    if (is_condemned(path)) {
        return data_loss("{}: a worker has found it damaged when it used it", with(path));
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ELOOP) return data_loss("{}: a symbolic link", with(path));
    if (fd < 0) return Error{file_error_code(errno), path + ": " + std::strerror(errno)};
    SealedFile file;
    file.path_ = path;
    file.fd_ = fd;
    struct stat status {};
    const bool is_known = ::fstat(fd, &status) == 0;
    const auto size = static_cast<size_t>(is_known ? status.st_size : 0);
    void* data = MAP_FAILED;
    if (is_known && S_ISREG(status.st_mode) && size >= sizeof(FixedHeader)) {
        data = map_aligned(fd, size);
    }
    const int map_error = errno;
    if (!is_known || !S_ISREG(status.st_mode) || size < sizeof(FixedHeader)) {
        return data_loss("{}: {} bytes, or not a regular file", with(path, size));
    }
    if (data == MAP_FAILED) {
        return unavailable("{}: mapping: {}", with(path, std::strerror(map_error)));
    }
    file.data_ = static_cast<const std::byte*>(data);
    file.size_ = size;
    AFD_TRY(file.read_header(key, block_bytes));
    return file;
}

Result<> SealedFile::read_header(const std::string& key, std::span<const size_t> block_bytes) {
    const auto lost = [this](const std::string& what) {
        return data_loss("{}: {}", with(path_, what));
    };
    FixedHeader fixed;
    if (!can_be_read({data_, sizeof fixed})) return lost(kCannotBeRead);
    std::memcpy(&fixed, data_, sizeof fixed);
    if (fixed.magic != kMagic) return lost("not a weight cache file (wrong first bytes)");
    if (fixed.version != kVersion || fixed.byte_order != kByteOrder) {
        return failed_precondition("{}: format version {}, not {}, or another byte order",
                                   with(path_, fixed.version, kVersion));
    }
    // Bounded before anything is added up or reserved: these are a file's numbers.
    if (fixed.num_blocks > kSealedBlocksMax || fixed.key_bytes > kKeyBytesMax ||
        fixed.header_bytes != header_size(fixed.num_blocks, fixed.key_bytes) ||
        fixed.header_bytes > size_) {
        return lost("the header's sizes do not fit together");
    }
    if (fixed.file_bytes != size_) {
        return lost(fmt::format("has {} bytes; its header says {}", size_, fixed.file_bytes));
    }
    if (!can_be_read({data_, fixed.header_bytes})) return lost(kCannotBeRead);
    if (header_checksum({data_, fixed.header_bytes}) != fixed.checksum) {
        return lost("the header's checksum is wrong");
    }
    std::vector<BlockRow> rows(fixed.num_blocks);
    std::memcpy(rows.data(), data_ + sizeof fixed, rows.size() * sizeof(BlockRow));
    const std::string own_key(
        reinterpret_cast<const char*>(data_ + sizeof fixed + rows.size() * sizeof(BlockRow)),
        fixed.key_bytes);
    if (own_key != key) {
        return failed_precondition("{}: holds \"{}\", not \"{}\"", with(path_, own_key, key));
    }
    bool fits = rows.size() == block_bytes.size();
    uint64_t offset = aligned(fixed.header_bytes);
    for (size_t i = 0; fits && i < rows.size(); ++i) {
        // Where the blocks must be is known here; the file may only agree.
        fits = rows[i].offset == offset && rows[i].bytes == block_bytes[i];
        offset += aligned(rows[i].bytes);
        blocks_.push_back({rows[i].offset, rows[i].bytes, rows[i].checksum});
    }
    if (!fits || offset != size_) {
        return failed_precondition("{}: its blocks have other sizes", with(path_));
    }
    return {};
}

std::span<const std::byte> SealedFile::block(size_t index) const {
    AFD_ASSERT(index < blocks_.size(), "block %zu of %zu", index, blocks_.size());
    return {data_ + blocks_[index].offset, blocks_[index].bytes};
}

void SealedFile::condemn() const {
    // A failure means that the next process finds the damage by itself.
    if (fd_ >= 0) ::fchmod(fd_, kCondemnedMode);
}

void SealedFile::close_descriptor() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<> SealedFile::verify(size_t index) const {
    if (!can_be_read(block(index))) {
        return data_loss("{}: block {} {}", with(path_, index, kCannotBeRead));
    }
    if (Checksum::of(block(index)) == blocks_[index].checksum) return {};
    return data_loss("{}: block {} has another checksum than when it was written",
                     with(path_, index));
}

SealedFileWriter::SealedFileWriter(SealedFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      key_(std::move(other.key_)),
      fd_(std::exchange(other.fd_, -1)),
      offsets_(std::move(other.offsets_)),
      sizes_(std::move(other.sizes_)),
      checksums_(std::move(other.checksums_)),
      file_bytes_(other.file_bytes_),
      pages_(std::move(other.pages_)) {}

SealedFileWriter::~SealedFileWriter() {
    if (fd_ < 0) return;
    // Before it is closed: then another file could have its inode.
    const bool is_ours = !is_replaced();
    ::close(fd_);
    if (is_ours) ::unlink(temporary_.c_str());
}

bool SealedFileWriter::is_replaced() const {
    struct stat ours {};
    struct stat there {};
    if (::fstat(fd_, &ours) != 0 || ::lstat(temporary_.c_str(), &there) != 0) return false;
    return ours.st_dev != there.st_dev || ours.st_ino != there.st_ino;
}

Error SealedFileWriter::failure(const char* what) const {
    const int error = errno;
    std::string text = temporary_ + ": " + what + ": " + std::strerror(error);
    if (file_error_code(error) == Code::kResourceExhausted) {
        text += fmt::format("; {} MiB are needed", (file_bytes_ >> 20) + 1);
    }
    return Error{file_error_code(error), std::move(text)};
}

Result<SealedFileWriter> SealedFileWriter::create(const std::string& path,
                                                  const std::string& key,
                                                  std::span<const size_t> block_bytes) {
    AFD_ASSERT(key.size() <= kKeyBytesMax && block_bytes.size() <= kSealedBlocksMax,
               "key of %zu bytes, %zu blocks",
               key.size(),
               block_bytes.size());
    SealedFileWriter writer;
    writer.path_ = path;
    writer.temporary_ = path + ".tmp";
    writer.key_ = key;
    writer.file_bytes_ = aligned(header_size(block_bytes.size(), key.size()));
    for (const size_t bytes : block_bytes) {
        writer.offsets_.push_back(writer.file_bytes_);
        writer.sizes_.push_back(bytes);
        writer.file_bytes_ += aligned(bytes);
    }
    writer.checksums_.resize(block_bytes.size());
    ::unlink(writer.temporary_.c_str());
    writer.fd_ =
        ::open(writer.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (writer.fd_ < 0) return writer.failure("creating");
    // Now: a disk that fills up in the middle would cost the packing of all layers before it is
    // known.
    const int error = ::posix_fallocate(writer.fd_, 0, static_cast<off_t>(writer.file_bytes_));
    if (error != 0) {
        errno = error;
        return writer.failure("reserving");
    }
    writer.pages_ = std::make_unique<WholePages>(writer.fd_, writer.file_bytes_);
    return writer;
}

Result<> SealedFileWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    const int error = pages_->write(offset, bytes, aligned(bytes.size()));
    if (error == 0) return {};
    errno = error;
    return failure("writing");
}

Result<> SealedFileWriter::write(size_t index, std::span<const std::byte> bytes) {
    AFD_ASSERT(index < sizes_.size() && bytes.size() == sizes_[index],
               "block %zu of %zu with %zu bytes",
               index,
               sizes_.size(),
               bytes.size());
    checksums_[index] = Checksum::of(bytes);
    return write_at(offsets_[index], bytes);
}

Result<> SealedFileWriter::seal() {
    std::vector<BlockRow> rows(sizes_.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = {offsets_[i], sizes_[i], checksums_[i]};
    FixedHeader fixed;
    fixed.header_bytes = header_size(rows.size(), key_.size());
    fixed.file_bytes = file_bytes_;
    fixed.num_blocks = rows.size();
    fixed.key_bytes = key_.size();
    // The header comes last: without it a file that was left half written is none.
    AFD_TRY(write_at(0, compose_header(fixed, rows, key_)));
    if (::fchmod(fd_, 0400) != 0) return failure("sealing");
    if (::fsync(fd_) != 0) return failure("flushing");
    // Those who hold locks of two files, since somebody has removed one, have one temporary name.
    if (is_replaced()) {
        return failed_precondition(
            "{}: was replaced while it was written: another process packs the same file. Remove "
            "no .lock file while programs use the weight cache",
            with(temporary_));
    }
    // Behind the flush: whoever finds the file under this name finds all of it, even after a crash
    // of the machine.
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failure("renaming");
    ::close(std::exchange(fd_, -1));
    return {};
}

}  // namespace afd::model
