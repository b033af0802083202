// SPDX-License-Identifier: Apache-2.0
#pragma once

// MappedExperts: the experts whose weights are views of sealed files, each read and checked in full
// before its first use, and not before serving begins. So a worker is ready when it has mapped its
// files, however long the disk takes to deliver them.
//
// Two threads check: the data thread (with its helpers) what a pass needs and nobody has checked
// yet, and one other thread everything in order (daemon/worker/weight_reader.h). Both may check the
// same expert; it costs time only.
//
// A damaged expert cannot be mended here: the file is condemned and the owner told, who ends the
// process. Its successor packs the layer again.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/weight_cache/sealed_file.h"
#include "ops/experts/first_use.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::model {

class MappedExperts final : public ops::FirstUse {
  public:
    static constexpr size_t kBlocks = 2;  // Gate and up, down.

    struct Place {
        size_t key = 0;  // In the table of experts.
        std::array<size_t, kBlocks> blocks = {};
    };

    // `num_keys`: of the table of experts.
    explicit MappedExperts(size_t num_keys) : entry_of_key_(num_keys, kNobody) {}

    // Before all that follows. REQUIRES: new keys; blocks of the file.
    void add(SealedFile file, std::span<const Place> places);

    // `tell` gets the error of a damaged block that before() finds, on the thread that found it,
    // and must not return.
    void on_damage(std::function<void(const Error&)> tell) { tell_ = std::move(tell); }
    // `beat` is called on the data thread in between while before() reads.
    void while_reading(std::function<void()> beat) { beat_ = std::move(beat); }

    // For the data thread. Keys without an entry are somebody else's.
    void before(std::span<const ops::ExpertGroup> groups, ops::Parallel& parallel) override;

    // For the other thread: checks the next expert in the order of add() that needs it. False:
    // there is none. Errors: kDataLoss, a damaged block; after it the process has to end.
    Result<bool> check_next();

    // Whether before() was called; any thread may ask.
    bool is_in_use() const {
        // Relaxed: partner is before(), where a late look costs only time.
        return is_in_use_.load(std::memory_order_relaxed);
    }

    uint64_t num_bytes() const { return num_bytes_; }
    // Not checked yet; any thread may ask.
    uint64_t bytes_left() const {
        // Acquire: partner is the release in set_checked(), so that 0 shows every expert as
        // checked.
        return bytes_left_.load(std::memory_order_acquire);
    }

  private:
    static constexpr uint32_t kNobody = UINT32_MAX;

    struct Entry {
        size_t file = 0;
        std::array<size_t, kBlocks> blocks = {};
        uint64_t num_bytes = 0;
    };

    bool is_checked(size_t entry) const;
    Result<> check_block(size_t entry, size_t block) const;
    void set_checked(size_t entry);

    std::vector<SealedFile> files_;
    std::vector<Entry> entries_;
    std::vector<uint32_t> entry_of_key_;
    std::vector<uint8_t> is_checked_;  // By entry; through atomic_ref.
    std::vector<uint32_t> pending_;    // Of one call of before().
    size_t next_ = 0;                  // The other thread's.
    uint64_t num_bytes_ = 0;
    std::atomic<uint64_t> bytes_left_{0};
    std::atomic<bool> is_in_use_{false};
    std::function<void(const Error&)> tell_;
    std::function<void()> beat_;
};

}  // namespace afd::model
