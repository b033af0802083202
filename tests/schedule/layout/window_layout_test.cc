// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/window_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "schedule/context/heartbeat.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/segment_header.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

// The worked example of docs/wire.md.
Geometry documented_geometry() {
    return {.num_sessions = 2,
            .num_micro_batches = 2,
            .micro_batch_size = 256,
            .selected_expert_num = 9,
            .num_experts = 65,
            .attn_to_ffn_token_bytes = 1024,
            .ffn_to_attn_token_bytes = 1536,
            .num_ffn_workers = 2};
}

WindowLayout layout_of(const Geometry& geometry) {
    return WindowLayout::compute(geometry).value();
}

// Oracle: numbers worked out by hand from the interface's text, not from the code.
TEST(WindowLayout, HasTheDocumentedOffsets) {
    const WindowLayout layout = layout_of(documented_geometry());
    // A descriptor is 2 + 256 * 9 = 2306 words.
    EXPECT_EQ(layout.ffn_window.descriptor_bytes, 9224u);
    EXPECT_EQ(layout.ffn_window.info_bytes, 36896u);
    EXPECT_EQ(layout.ffn_window.data_offset, 37376u);
    EXPECT_EQ(layout.ffn_window.data_bytes, 9437184u);
    EXPECT_EQ(layout.ffn_window.total_bytes, 9474560u);
    EXPECT_EQ(layout.attention_window.info_bytes, 18432u);
    EXPECT_EQ(layout.attention_window.data_offset, 18432u);
    EXPECT_EQ(layout.attention_window.data_bytes, 7077888u);
    EXPECT_EQ(layout.attention_window.total_bytes, 7096320u);
    EXPECT_EQ(layout.ffn_control.acknowledged_offset, 2048u);
    EXPECT_EQ(layout.ffn_control.acknowledged_row_bytes, 128u);
    EXPECT_EQ(layout.ffn_control.executions_offset, 2304u);
    EXPECT_EQ(layout.ffn_control.executions_bytes, 32u);
    EXPECT_EQ(layout.ffn_control.layer_ids_offset, 2432u);
    EXPECT_EQ(layout.ffn_control.session_ids_offset, 2560u);
    EXPECT_EQ(layout.ffn_control.micro_batch_ids_offset, 2688u);
    EXPECT_EQ(layout.ffn_control.expert_ids_offset, 2816u);
    EXPECT_EQ(layout.ffn_control.total_bytes, 21248u);
    EXPECT_EQ(layout.attention_control_bytes, 2048u);
    // Two ranks' histograms; 65 experts' rows in whole lines.
    EXPECT_EQ(layout.attention_metrics_bytes, 143360u + 2u * 1280u);
    EXPECT_EQ(layout.ffn_metrics_bytes, 143360u + 640u);
    // Session 1, micro-batch 0, token 3, k 4.
    EXPECT_EQ(layout.descriptor_offset(1, 0), 18448u);
    EXPECT_EQ(layout.token_row_offset(1, 0, 3, 4), 37376u + (2u * 2304u + 31u) * 1024u);
    EXPECT_EQ(layout.result_flag_offset(1, 3, 4), (2304u + 31u) * 4u);
    EXPECT_EQ(layout.result_row_offset(1, 3, 4), 18432u + (2304u + 31u) * 1536u);
    EXPECT_EQ(layout.acknowledged_offset(1, 1), 2048u + 128u + 4u);
}

TEST(WindowLayout, RefusesAnInvalidGeometry) {
    Geometry geometry = documented_geometry();
    geometry.num_sessions = 0;
    const Result<WindowLayout> layout = WindowLayout::compute(geometry);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.error().code, Code::kInvalidArgument);
}

struct Region {
    uint64_t begin;
    uint64_t bytes;
};

// Regions must be ascending, disjoint and inside the segment.
void expect_disjoint(const std::vector<Region>& regions, uint64_t total_bytes) {
    uint64_t end = 0;
    for (const Region& region : regions) {
        EXPECT_GE(region.begin, end);
        end = region.begin + region.bytes;
    }
    EXPECT_LE(end, total_bytes);
}

// Goal: no two regions overlap, data is aligned, writers keep to their own lines, for any
// geometry. Method: random geometries from a fixed seed, extremes included. Oracle: the
// invariants of the header, checked on the numbers.
TEST(WindowLayout, KeepsItsInvariantsForRandomGeometries) {
    std::mt19937 random(7);
    const auto pick = [&](uint32_t low, uint32_t high) {
        return std::uniform_int_distribution<uint32_t>(low, high)(random);
    };
    for (int i = 0; i < 500; ++i) {
        const Geometry geometry{.num_sessions = i == 0 ? 1024 : pick(1, 40),
                                .num_micro_batches = i == 0 ? 64 : pick(1, 64),
                                .micro_batch_size = pick(1, 300),
                                .selected_expert_num = pick(1, 68),
                                .num_experts = pick(1, 300),
                                .attn_to_ffn_token_bytes = 512 * pick(1, 30),
                                .ffn_to_attn_token_bytes = 512 * pick(1, 30),
                                .num_ffn_workers = pick(0, 8)};
        SCOPED_TRACE(i);
        const WindowLayout layout = layout_of(geometry);
        const uint32_t s = geometry.num_sessions - 1;
        const uint32_t m = geometry.num_micro_batches - 1;
        const uint32_t bs = geometry.micro_batch_size - 1;
        const uint32_t k = geometry.selected_expert_num - 1;

        const FfnWindowLayout& ffn = layout.ffn_window;
        expect_disjoint({{0, ffn.info_bytes}, {ffn.data_offset, ffn.data_bytes}}, ffn.total_bytes);
        EXPECT_EQ(ffn.data_offset % 512, 0u);
        EXPECT_EQ(layout.descriptor_offset(s, m) + ffn.descriptor_bytes, ffn.info_bytes);
        EXPECT_EQ(layout.token_row_offset(s, m, bs, k) + geometry.attn_to_ffn_token_bytes,
                  ffn.total_bytes);

        const AttentionWindowLayout& attention = layout.attention_window;
        expect_disjoint({{0, attention.info_bytes}, {attention.data_offset, attention.data_bytes}},
                        attention.total_bytes);
        EXPECT_EQ(attention.data_offset % 512, 0u);
        EXPECT_EQ(layout.result_flag_offset(m, bs, k) + 4, attention.info_bytes);
        EXPECT_EQ(layout.result_row_offset(m, bs, k) + geometry.ffn_to_attn_token_bytes,
                  attention.total_bytes);

        const FfnControlLayout& control = layout.ffn_control;
        expect_disjoint(
            {{0, sizeof(ScheduleContext)},
             {kHeaderOffset, kHeaderBytes},
             {kDoorbellOffset, kLineBytes},
             {kHeartbeatOffset, kLineBytes},
             {control.acknowledged_offset, geometry.num_sessions * control.acknowledged_row_bytes},
             {control.executions_offset, control.executions_bytes},
             {control.layer_ids_offset, control.per_session_bytes},
             {control.session_ids_offset, control.per_session_bytes},
             {control.micro_batch_ids_offset, control.per_session_bytes},
             {control.expert_ids_offset, control.expert_ids_bytes}},
            control.total_bytes);
        EXPECT_EQ(layout.acknowledged_offset(s, 0) % kLineBytes, 0u);
        EXPECT_LE(layout.acknowledged_offset(s, m) + 4, control.executions_offset);
    }
}

// The header is afdd's, doorbell and heartbeat are the worker's: they must not share a line.
TEST(WindowLayout, SeparatesWritersByLines) {
    for (const uint64_t offset : {kHeaderOffset, kDoorbellOffset, kHeartbeatOffset}) {
        EXPECT_EQ(offset % kLineBytes, 0u);
    }
    EXPECT_EQ(sizeof(HeartbeatWords), kLineBytes);
    EXPECT_EQ(sizeof(SegmentHeader) % kLineBytes, 0u);
}

TEST(ScheduleContext, StartsWithTheDocumentedValues) {
    const Geometry geometry = documented_geometry();
    const WindowLayout layout = layout_of(geometry);
    const ScheduleContext ffn = make_schedule_context(geometry, ScheduleMode::kFfn);
    EXPECT_EQ(ffn.common.session_num, 2u);
    EXPECT_EQ(ffn.common.micro_batch_num, 2u);
    EXPECT_EQ(ffn.common.micro_batch_size, 256u);
    EXPECT_EQ(ffn.common.selected_expert_num, 9u);
    EXPECT_EQ(ffn.common.expert_num, 65u);
    EXPECT_EQ(ffn.common.attn_to_ffn_token_size, 1024u);
    EXPECT_EQ(ffn.common.ffn_to_attn_token_size, 1536u);
    EXPECT_EQ(ffn.common.schedule_mode, 0);
    EXPECT_EQ(ffn.control.run_flag, 1);
    EXPECT_EQ(ffn.ffn.token_info_buf, 0u);
    EXPECT_EQ(ffn.ffn.token_info_buf_size, 36896u);
    EXPECT_EQ(ffn.ffn.token_data_buf, 37376u);
    EXPECT_EQ(ffn.ffn.polling_index, 0u);
    EXPECT_EQ(ffn.ffn.layer_ids_buf_size, 8u);
    EXPECT_EQ(ffn.ffn.expert_ids_buf, layout.ffn_control.expert_ids_offset);
    EXPECT_EQ(ffn.ffn.expert_ids_buf_size, 2u * 256 * 9 * 4);
    EXPECT_EQ(ffn.ffn.out_num, 0u);
    EXPECT_EQ(ffn.attention.token_info_buf_size, 0u);

    const ScheduleContext attention = make_schedule_context(geometry, ScheduleMode::kAttention);
    EXPECT_EQ(attention.common.schedule_mode, 1);
    EXPECT_EQ(attention.attention.micro_batch_id, 1u);
    EXPECT_EQ(attention.attention.token_data_buf, 18432u);
    EXPECT_EQ(attention.ffn.token_info_buf_size, 0u);
}

// Goal: reserved bytes stay zero. Method: the context as bytes, every named field cleared.
// Oracle: nothing is left.
TEST(ScheduleContext, LeavesReservedBytesZero) {
    ScheduleContext context = make_schedule_context(documented_geometry(), ScheduleMode::kBoth);
    const auto clear = [](auto& first, auto& reserve) {
        std::memset(static_cast<void*>(&first),
                    0,
                    static_cast<size_t>(reinterpret_cast<char*>(&reserve) -
                                        reinterpret_cast<char*>(&first)));
    };
    clear(context.common.session_num, context.common.reserve0);
    clear(context.control.run_flag, context.control.reserve1);
    clear(context.attention.token_info_buf, context.attention.reserve5);
    clear(context.ffn.token_info_buf, context.ffn.reserve3);
    clear(context.ffn.layer_ids_buf, context.ffn.reserve4);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&context);
    EXPECT_TRUE(std::all_of(bytes, bytes + sizeof(context), [](auto byte) { return byte == 0; }));
}

}  // namespace
}  // namespace afd::schedule
