// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowCase: a ScheduleContext and windows of both kinds, for tests of the operators on windows.
// Windows end at guard pages, and the places of the buffers are not those of WindowLayout:
// operators take them from the context.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/context/schedule_context.h"
#include "tests/ops/guard_allocator.h"

namespace afd::ops::test {

struct WindowSizes {
    uint32_t num_sessions;       // A
    uint32_t num_micro_batches;  // M
    uint32_t micro_batch_size;   // BS
    uint32_t num_slots;          // K1
    uint32_t num_workers;        // F
    uint32_t token_bytes;        // HS and HS'
};

struct WindowCase {
    static constexpr size_t kGap = 64;  // In front of the first buffer.

    schedule::ScheduleContext context{};
    std::vector<GuardedVector<int32_t>> ffn_words;
    std::vector<GuardedVector<int32_t>> attention_words;
    std::vector<std::span<std::byte>> ffn_windows;
    std::vector<std::span<std::byte>> attention_windows;

    explicit WindowCase(const WindowSizes& s) {
        const uint64_t slots = uint64_t{s.micro_batch_size} * s.num_slots;
        const uint64_t lanes = uint64_t{s.num_sessions} * s.num_micro_batches;
        context.common = {s.num_sessions,
                          s.num_micro_batches,
                          s.micro_batch_size,
                          s.num_slots,
                          64,
                          s.token_bytes,
                          s.token_bytes,
                          2,
                          {}};
        context.control.run_flag = 1;
        auto& ffn = context.ffn;
        ffn.token_info_buf = kGap;
        ffn.token_info_buf_size = lanes * (2 + slots) * 4;
        ffn.token_data_buf = kGap + ffn.token_info_buf_size;
        ffn.token_data_buf_size = lanes * slots * s.token_bytes;
        auto& attention = context.attention;
        attention.token_info_buf = kGap;
        attention.token_info_buf_size = s.num_micro_batches * slots * 4;
        attention.token_data_buf = kGap + attention.token_info_buf_size;
        attention.token_data_buf_size = s.num_micro_batches * slots * s.token_bytes;
        attention.micro_batch_id = s.num_micro_batches - 1;
        ffn_words.assign(
            s.num_workers,
            GuardedVector<int32_t>((ffn.token_data_buf + ffn.token_data_buf_size) / 4));
        attention_words.assign(
            s.num_sessions,
            GuardedVector<int32_t>((attention.token_data_buf + attention.token_data_buf_size) / 4));
        for (auto& words : ffn_words) {
            ffn_windows.push_back(std::as_writable_bytes(std::span<int32_t>(words)));
        }
        for (auto& words : attention_words) {
            attention_windows.push_back(std::as_writable_bytes(std::span<int32_t>(words)));
        }
    }
    WindowCase(const WindowCase&) = delete;
    WindowCase& operator=(const WindowCase&) = delete;

    // The descriptor of (session, micro-batch) in a worker's window.
    int32_t* descriptor(size_t rank, size_t session, size_t m) {
        const auto& c = context.common;
        const size_t words = 2 + size_t{c.micro_batch_size} * c.selected_expert_num;
        return ffn_words[rank].data() + kGap / 4 + (session * c.micro_batch_num + m) * words;
    }
    std::byte* ffn_row(size_t rank, size_t session, size_t m, size_t token, size_t slot) {
        const auto& c = context.common;
        const size_t lane = session * c.micro_batch_num + m;
        const size_t place = (lane * c.micro_batch_size + token) * c.selected_expert_num + slot;
        return ffn_windows[rank].data() + context.ffn.token_data_buf +
               place * c.attn_to_ffn_token_size;
    }
    size_t result_slot(size_t m, size_t token, size_t slot) const {
        const auto& c = context.common;
        return (m * c.micro_batch_size + token) * c.selected_expert_num + slot;
    }
    int32_t& result_flag(size_t session, size_t m, size_t token, size_t slot) {
        return attention_words[session][kGap / 4 + result_slot(m, token, slot)];
    }
    std::byte* result_row(size_t session, size_t m, size_t token, size_t slot) {
        return attention_windows[session].data() + context.attention.token_data_buf +
               result_slot(m, token, slot) * context.common.ffn_to_attn_token_size;
    }
};

}  // namespace afd::ops::test
