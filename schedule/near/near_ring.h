// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearRing: bytes from one process to another, in order, through memory that both map. One writer
// and one reader; each has words of its own, and the other's are looked at.
//
//   writer                                    reader
//   store bytes; written += n      (seq_cst)  sleeps = 1               (seq_cst)
//   sleeps? then wake the reader   (seq_cst)  is written > read? else sleep (seq_cst)
//
// and the same the other way round for a writer that has no room. The four accesses are totally
// ordered, so no wake-up is lost (R9). How the other one is woken is the caller's.
//
// The other side may store anything anywhere in that memory: a count of its own that cannot be is
// found, bytes are copied out before anybody judges them, and nothing else is believed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace afd::schedule {

// Words with different writers never share so much, which a core may fetch at once.
inline constexpr size_t kNearLineBytes = 128;

// In front of the bytes. Counts are of all bytes ever, so they only rise.
struct NearRingWords {
    alignas(kNearLineBytes) uint64_t written;  // The writer's line.
    int32_t writer_sleeps;
    alignas(kNearLineBytes) uint64_t read;  // The reader's.
    int32_t reader_sleeps;
};
static_assert(sizeof(NearRingWords) == 2 * kNearLineBytes, "one writer, one line");

class NearWriter {
  public:
    NearWriter() = default;
    // Over zeroed memory, which outlives this. REQUIRES: `bytes` is a power of two.
    NearWriter(NearRingWords& words, std::span<std::byte> bytes) : words_(&words), bytes_(bytes) {}

    // Copies as many of them as there is room for, and returns how many; nothing: the reader's
    // count cannot be. They arrive with publish().
    std::optional<size_t> write(std::span<const std::byte> from);
    // Returns whether the reader is to be woken.
    bool publish();
    // Before sleeping for room. Returns whether there is some already.
    bool arm();
    void disarm();

  private:
    std::optional<uint64_t> room(bool is_last_look);

    NearRingWords* words_ = nullptr;
    std::span<std::byte> bytes_;
    uint64_t written_ = 0;
    uint64_t room_ = 0;  // That was seen and is left.
};

class NearReader {
  public:
    NearReader() = default;
    NearReader(NearRingWords& words, std::span<const std::byte> bytes)
        : words_(&words), bytes_(bytes) {}

    // Copies as many as are there and wanted, and returns how many; nothing: the writer's count
    // cannot be. Their room is the writer's again with release().
    std::optional<size_t> read(std::span<std::byte> to);
    // Returns whether the writer is to be woken.
    bool release();
    // Before sleeping. Returns whether something is there already.
    bool arm();
    void disarm();

  private:
    std::optional<uint64_t> available(bool is_last_look);

    NearRingWords* words_ = nullptr;
    std::span<const std::byte> bytes_;
    uint64_t read_ = 0;
    uint64_t seen_ = 0;  // Bytes that were seen and are not read.
};

}  // namespace afd::schedule
