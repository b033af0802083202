// SPDX-License-Identifier: Apache-2.0
#pragma once

// SealedFile: byte blocks written once into a file that is complete from the moment it has its
// name, and mapped read-only by every process that wants them.
//
//   0       header: magic, version, header bytes, file bytes, number of blocks, checksum of the
//           header; the owner's key, a text; per block: offset, bytes, checksum
//   4096k   the blocks, each at a multiple of 4096, in the order of the table
//
// Everything little-endian as this machine has it; a file of another byte order has another magic.
//
// A file is written under a temporary name, flushed to the disk and renamed: whoever can open its
// name sees all of it. Nothing here truncates or writes a file that has its final name, so a
// mapping never loses its pages as long as nobody else truncates files of our directory; that is
// why the directory belongs to the user and to nobody else (model/weight_cache/weight_cache.h).
// Removing or replacing the file is harmless: a mapping keeps the old one.
//
// Blocks may be read and checked long after the file was opened. Who finds one damaged then
// condemns the file, by taking away the right to read it: whoever opens its name from then on
// writes it anew.
//
// What the disk does not deliver is an error of open() and verify(), which let the kernel read
// before they touch anything (from Linux 5.14 on). A SIGBUS it is for who reads a block that was
// never verified, or that memory did not keep.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/weight_cache/checksum.h"
#include "model/weight_cache/whole_pages.h"
#include "proto/status.h"

namespace afd::model {

inline constexpr size_t kSealedBlockAlignment = 4096;
inline constexpr size_t kSealedBlocksMax = 1u << 20;
inline constexpr unsigned kCondemnedMode = 0;  // Of the file, as chmod takes it.

class SealedFile {
  public:
    // Maps `path` and checks everything but the blocks' bytes. `key` says what the blocks are and
    // `block_bytes` how long each must be.
    // Errors: kNotFound; kDataLoss (truncated, corrupt, condemned, not such a file) and
    // kFailedPrecondition (a sound file, but of another key or other sizes): the message says what
    // is wrong. Others say nothing about the file: it could not be opened or mapped.
    static Result<SealedFile> open(const std::string& path,
                                   const std::string& key,
                                   std::span<const size_t> block_bytes);

    // Whether somebody has condemned the file of this name.
    static bool is_condemned(const std::string& path);

    SealedFile() = default;
    SealedFile(SealedFile&& other) noexcept;
    SealedFile& operator=(SealedFile&& other) noexcept;
    ~SealedFile();

    // Read-only, at a multiple of 4096; valid while this object lives.
    std::span<const std::byte> block(size_t index) const;

    // Reads all bytes of the block. Needs no system call but madvise.
    // Errors: kDataLoss: they cannot be read, or are others than were written.
    Result<> verify(size_t index) const;

    // For who has found a block damaged. Needs no system call but fchmod.
    void condemn() const;

    // The mapping stays, and nobody can condemn() the file by this object any more.
    void close_descriptor();

  private:
    struct Block {
        uint64_t offset = 0;
        uint64_t bytes = 0;
        uint64_t checksum = 0;
    };

    Result<> read_header(const std::string& key, std::span<const size_t> block_bytes);

    std::string path_;
    int fd_ =
        -1;  // Of the mapped file: its name may belong to another by the time it is condemned.
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
    std::vector<Block> blocks_;
};

class SealedFileWriter {
  public:
    // Creates `path`.tmp (an old one is removed) and reserves its space on the disk.
    // Errors: kResourceExhausted (no room: says how much is needed), kPermissionDenied,
    // kUnavailable.
    static Result<SealedFileWriter> create(const std::string& path,
                                           const std::string& key,
                                           std::span<const size_t> block_bytes);

    SealedFileWriter(SealedFileWriter&& other) noexcept;
    SealedFileWriter& operator=(SealedFileWriter&&) = delete;
    // Removes the temporary file of a writer that was not sealed, if it is still this one's.
    ~SealedFileWriter();

    // Writes one block; different blocks may be written from different threads. What shares a page
    // with other blocks is written with the last of them (WholePages).
    // REQUIRES: the size that was announced; not twice. Errors: as create(), also of another block.
    Result<> write(size_t index, std::span<const std::byte> bytes);

    // Writes the header, flushes and renames. REQUIRES: every block was written. Errors: as
    // create(); kFailedPrecondition: the temporary file is another's by now, and stays.
    Result<> seal();

  private:
    SealedFileWriter() = default;
    Error failure(const char* what) const;
    // Whether the temporary name is that of another file by now.
    bool is_replaced() const;
    Result<> write_at(uint64_t offset, std::span<const std::byte> bytes);

    std::string path_;
    std::string temporary_;
    std::string key_;
    int fd_ = -1;
    std::vector<uint64_t> offsets_;
    std::vector<uint64_t> sizes_;
    std::vector<uint64_t> checksums_;
    uint64_t file_bytes_ = 0;
    std::unique_ptr<WholePages> pages_;
};

}  // namespace afd::model
