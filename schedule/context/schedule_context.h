// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScheduleContext: the 1024 bytes at the start of every control segment.
//
// Field names, order and places are those of the FfnWorkerBatching operator's interface. One
// departure: a *_buf field holds a byte offset instead of an address, because processes map
// segments at different addresses. The segment it counts from:
//
//   attention.token_info_buf, token_data_buf   the session's attention window
//   ffn.token_info_buf, token_data_buf         the rank's FFN window
//   ffn.layer_ids_buf ... expert_ids_buf       the rank's FFN control segment
//
// afdd writes it at creation; then only the worker that owns the segment does, and only the words
// of context_words.h. The exception is run_flag, which is afdd's: 0 ends the worker, and afdd
// starts it again when it is to run again. Reserved bytes are zero when written and ignored when
// read.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "schedule/layout/geometry.h"

namespace afd::schedule {

struct ScheduleContext {
    struct CommonArea {
        uint32_t session_num;             // A
        uint32_t micro_batch_num;         // M
        uint32_t micro_batch_size;        // BS
        uint32_t selected_expert_num;     // K1
        uint32_t expert_num;              // Routed of a layer, and 1 if shared ones are dispatched.
        uint32_t attn_to_ffn_token_size;  // HS, bytes
        uint32_t ffn_to_attn_token_size;  // HS', bytes
        int32_t schedule_mode;            // A ScheduleMode.
        int8_t reserve0[96];
    };
    struct ControlArea {
        int32_t run_flag;  // 0 ends every loop and wait of the worker within 10 ms.
        int8_t reserve1[124];
    };
    struct AttentionArea {
        uint64_t token_info_buf;  // int32 flags [M][BS][K1]
        uint64_t token_info_buf_size;
        uint64_t token_data_buf;  // [M][BS][K1][HS'] bytes
        uint64_t token_data_buf_size;
        uint32_t micro_batch_id;  // The micro-batch combined last; M - 1 at the start.
        int8_t reserve5[92];
    };
    struct FfnArea {
        uint64_t token_info_buf;  // int32 [A][M][2 + BS * K1]: flag, layer_id, ids
        uint64_t token_info_buf_size;
        uint64_t token_data_buf;  // [A][M][BS][K1][HS] bytes
        uint64_t token_data_buf_size;
        uint64_t polling_index;  // The one after that taken last; policy `all` goes on from there.
        int8_t reserve3[88];
        uint64_t layer_ids_buf;  // int32 [A], the first out_num valid
        uint64_t layer_ids_buf_size;
        uint64_t session_ids_buf;  // int32 [A]
        uint64_t session_ids_buf_size;
        uint64_t micro_batch_ids_buf;  // int32 [A]
        uint64_t micro_batch_ids_buf_size;
        uint64_t expert_ids_buf;  // int32 [A][BS][K1]
        uint64_t expert_ids_buf_size;
        uint32_t out_num;  // Descriptors of the pass in work, 0 between passes.
        int8_t reserve4[60];
    };
    CommonArea common;
    ControlArea control;
    AttentionArea attention;
    FfnArea ffn;
    int8_t reserve6[384];
};

static_assert(std::is_standard_layout_v<ScheduleContext>, "offsets below must be meaningful");
static_assert(std::is_trivially_copyable_v<ScheduleContext>, "readers copy it once");
static_assert(sizeof(ScheduleContext) == 1024, "size in the operator's interface");
static_assert(alignof(ScheduleContext) == 8, "natural alignment gives the interface's layout");
static_assert(offsetof(ScheduleContext, common) == 0);
static_assert(offsetof(ScheduleContext, control) == 128);
static_assert(offsetof(ScheduleContext, attention) == 256);
static_assert(offsetof(ScheduleContext, attention.micro_batch_id) == 288);
static_assert(offsetof(ScheduleContext, ffn) == 384);
static_assert(offsetof(ScheduleContext, ffn.polling_index) == 416);
static_assert(offsetof(ScheduleContext, ffn.layer_ids_buf) == 512);
static_assert(offsetof(ScheduleContext, ffn.out_num) == 576);
static_assert(offsetof(ScheduleContext, reserve6) == 640);

enum class ScheduleMode : int32_t { kFfn = 0, kAttention = 1, kBoth = 2 };

// A context with its initial values: run_flag 1, micro_batch_id M - 1 (0 with kFfn, which has no
// use for it), polling_index and out_num 0, the offsets and sizes of the areas that `mode` uses
// (WindowLayout), zeros elsewhere. Without FFN workers (colocated) there are no windows, so none
// are described. REQUIRES: validate(geometry) is ok.
ScheduleContext make_schedule_context(const Geometry& geometry, ScheduleMode mode);

}  // namespace afd::schedule
