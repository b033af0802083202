// SPDX-License-Identifier: Apache-2.0
#pragma once

// ContextWords: the words of a ScheduleContext that change while a worker runs.
//
//   run_flag         afdd -> the worker: 0 asks it to end. A copy of what afdd wants: where another
//                    has stored a 0, the worker ends and afdd starts the next one
//   micro_batch_id   attention worker: the micro-batch whose results it took last
//   polling_index    FFN worker: the micro-batch after the one that it took last; policy `all`
//                    goes on from there, past micro-batches without an active session
//   out_num          FFN worker: descriptors of the pass in work, 0 between passes
//
// Everything else in a context is constant from the creation of the segment on. The words are for
// observers (afdctl context, a debugger, a scheduler that is being developed): no decision of a
// peer hangs on them, so every access is relaxed and costs what a plain load or store does.

#include <atomic>
#include <cstdint>

#include "schedule/context/schedule_context.h"

namespace afd::schedule {

class ContextWords {
  public:
    // Words of nobody: always running, and stores go nowhere.
    ContextWords() = default;
    // `context` outlives the object.
    explicit ContextWords(ScheduleContext& context) : context_(&context) {}

    // Relaxed: partner is set_run_flag(); a flag that brings no other word with it.
    bool run_flag() const {
        if (context_ == nullptr) return true;
        return std::atomic_ref(context_->control.run_flag).load(std::memory_order_relaxed) != 0;
    }
    // Partner: run_flag().
    void set_run_flag(bool runs) const {
        if (context_ != nullptr) store(context_->control.run_flag, runs ? 1 : 0);
    }

    // Partners of the next three are observers, which order nothing by them.
    void set_micro_batch_id(uint32_t micro_batch) const {
        if (context_ != nullptr) store(context_->attention.micro_batch_id, micro_batch);
    }
    void set_polling_index(uint64_t micro_batch) const {
        if (context_ != nullptr) store(context_->ffn.polling_index, micro_batch);
    }
    void set_out_num(uint32_t num_descriptors) const {
        if (context_ != nullptr) store(context_->ffn.out_num, num_descriptors);
    }

  private:
    // Relaxed: nothing is published by these words.
    template <typename T, typename Value>
    static void store(T& word, Value value) {
        std::atomic_ref(word).store(static_cast<T>(value), std::memory_order_relaxed);
    }

    ScheduleContext* context_ = nullptr;
};

}  // namespace afd::schedule
