// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/fresh_memory.h"

#include <algorithm>

#include "schedule/context/control_view.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

void format_ffn_window(const WindowLayout& layout, std::byte* window) {
    // Flag and layer_id are 0 already.
    const Geometry& geometry = layout.geometry;
    for (uint32_t session = 0; session < geometry.num_sessions; ++session) {
        for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
            void* descriptor = window + layout.descriptor_offset(session, m);
            std::fill_n(static_cast<int32_t*>(descriptor) + kDescriptorIdsWord,
                        geometry.slots_per_micro_batch(),
                        kMaskedId);
        }
    }
}

void format_control(const SegmentHeader& header, ScheduleMode mode, std::byte* control) {
    const ControlView view(control);
    view.context() = make_schedule_context(header.geometry, mode);
    view.write_header(header);
}

void restore_context(const SegmentHeader& header, ScheduleMode mode, std::byte* control) {
    ScheduleContext fresh = make_schedule_context(header.geometry, mode);
    ScheduleContext& context = ControlView(control).context();
    const uint32_t out_num = context.ffn.out_num;
    if (mode == ScheduleMode::kFfn && out_num <= header.geometry.num_sessions) {
        fresh.ffn.out_num = out_num;
    }
    context.common = fresh.common;
    context.attention = fresh.attention;
    context.ffn = fresh.ffn;
}

}  // namespace afd::schedule
