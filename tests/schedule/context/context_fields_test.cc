// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/context_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/context/context_words.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

std::string value_of(const ScheduleContext& context, std::string_view name) {
    for (const ContextField& field : context_fields(context)) {
        if (field.name == name) return field.value;
    }
    return "no such field";
}

// Goal: the table shows every byte once. Method: adds up places and sizes. Oracle: 1024, no gap.
TEST(ContextFields, CoverEveryByteOfTheContextOnce) {
    uint32_t end = 0;
    for (const ContextField& field : context_fields({})) {
        EXPECT_EQ(field.offset, end) << field.name;
        EXPECT_FALSE(field.meaning.empty()) << field.name;
        end = field.offset + field.size;
    }
    EXPECT_EQ(end, sizeof(ScheduleContext));
}

TEST(ContextFields, ShowValuesOfEveryKind) {
    ScheduleContext context = make_schedule_context(small_geometry(), ScheduleMode::kFfn);
    context.control.run_flag = -7;
    context.ffn.polling_index = uint64_t{1} << 40;
    context.common.session_num = 4000000000U;
    context.reserve6[383] = 1;
    EXPECT_EQ(value_of(context, "control.run_flag"), "-7");
    EXPECT_EQ(value_of(context, "ffn.polling_index"), "1099511627776");
    EXPECT_EQ(value_of(context, "common.session_num"), "4000000000");
    EXPECT_EQ(value_of(context, "reserve6"), "not zero");
    EXPECT_EQ(value_of(context, "control.reserve1"), "0");
}

// Oracle: docs/wire.md.
TEST(ContextFields, SayWhatTheWordsMean) {
    const auto meaning_of = [](std::string_view name) {
        const std::vector<ContextField> fields = context_fields({});
        const auto found = std::ranges::find(fields, name, &ContextField::name);
        return found == fields.end() ? "no such field" : found->meaning;
    };
    EXPECT_EQ(meaning_of("ffn.out_num"), "descriptors of the pass in work, 0 between passes");
    EXPECT_EQ(meaning_of("common.expert_num"),
              "routed experts of a layer, and one if the shared one is dispatched; information "
              "only");
}

TEST(ContextWords, AreTheFieldsOfTheContext) {
    ScheduleContext context = make_schedule_context(small_geometry(), ScheduleMode::kBoth);
    const ContextWords words(context);
    EXPECT_TRUE(words.run_flag());
    words.set_run_flag(false);
    words.set_micro_batch_id(1);
    words.set_polling_index(3);
    words.set_out_num(2);
    EXPECT_FALSE(words.run_flag());
    EXPECT_EQ(value_of(context, "control.run_flag"), "0");
    EXPECT_EQ(value_of(context, "attention.micro_batch_id"), "1");
    EXPECT_EQ(value_of(context, "ffn.polling_index"), "3");
    EXPECT_EQ(value_of(context, "ffn.out_num"), "2");
}

// Goal: no context describes windows that do not exist. Oracle: every area's words are 0.
TEST(ScheduleContext, ColocatedDescribesNoWindows) {
    Geometry geometry = small_geometry();
    geometry.num_ffn_workers = 0;
    const ScheduleContext context = make_schedule_context(geometry, ScheduleMode::kBoth);
    for (const ContextField& field : context_fields(context)) {
        if (field.name.find("_buf") == std::string_view::npos) continue;
        EXPECT_EQ(field.value, "0") << field.name;
    }
    EXPECT_EQ(value_of(context, "common.schedule_mode"), "2");
    EXPECT_EQ(context.attention.micro_batch_id, geometry.num_micro_batches - 1);
}

}  // namespace
}  // namespace afd::schedule
