// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/instance_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/dispatch/ready_scan.h"
#include "schedule/shared_memory/attach.h"
#include "schedule/shared_memory/shm_transport.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InstanceSegmentsTest : public ::testing::Test {
  protected:
    InstanceSegmentsTest()
        : instance_("insttest" + std::to_string(::getpid())),
          prefix_(segment_prefix(instance_, test_identity().instance_id)),
          layout_(WindowLayout::compute(small_geometry()).value()),
          doorbells_(3) {}
    ~InstanceSegmentsTest() override { Segment::remove_leftovers(instance_); }

    Result<InstanceSegments> create() {
        return InstanceSegments::create(prefix_, layout_, test_identity());
    }
    AttachConfig config() const {
        return {prefix_, layout_, test_identity(), doorbells_[0], {doorbells_[1], doorbells_[2]}};
    }
    size_t num_files() const {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
            count += entry.path().filename().string().starts_with(prefix_.substr(1)) ? 1 : 0;
        }
        return count;
    }

    std::string instance_;
    std::string prefix_;
    WindowLayout layout_;
    EventFds doorbells_;
};

TEST_F(InstanceSegmentsTest, CreatesEverythingAndUnlinksItAtTheEnd) {
    {
        const Result<InstanceSegments> segments = create();
        ASSERT_TRUE(segments.ok()) << segments.error().message;
        EXPECT_EQ(num_files(), 16u);  // Window, control, metrics, two-phase of 2 sessions, 2 ranks.
        EXPECT_EQ(segments.value().attention_control(1).header().index, 1u);
        EXPECT_EQ(segments.value().ffn_control(0).header().role, Role::kFfn);
        EXPECT_EQ(segments.value().ffn_control(0).context().control.run_flag, 1);
        int32_t descriptor[11];
        std::memcpy(descriptor, segments.value().ffn_window(1), sizeof(descriptor));
        EXPECT_EQ(descriptor[0], 0);
        EXPECT_EQ(descriptor[2], kMaskedId);
        EXPECT_EQ(descriptor[10], kMaskedId);
    }
    EXPECT_EQ(num_files(), 0u);
}

TEST_F(InstanceSegmentsTest, LeavesNothingBehindWhenItFails) {
    const std::string taken = segment_name(prefix_, Role::kFfn, 1, SegmentKind::kControl);
    const Result<Segment> squatter = Segment::create(taken, 4096);
    ASSERT_TRUE(squatter.ok());
    const Result<InstanceSegments> segments = create();
    ASSERT_FALSE(segments.ok());
    EXPECT_EQ(segments.error().code, Code::kAlreadyExists);
    EXPECT_EQ(num_files(), 1u) << "only the squatter's";
}

TEST_F(InstanceSegmentsTest, HasNoWindowsWhenColocated) {
    Geometry geometry = small_geometry();
    geometry.num_ffn_workers = 0;
    geometry.num_sessions = 1;
    layout_ = WindowLayout::compute(geometry).value();
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok());
    EXPECT_EQ(num_files(), 2u);
    EXPECT_EQ(segments.value().attention_control(0).context().common.schedule_mode, 2);
    EXPECT_EQ(InstanceSegments::total_bytes(layout_), 2048u + 143360u);
}

TEST_F(InstanceSegmentsTest, HasNoSegmentThatNobodyShares) {
    const auto segments =
        InstanceSegments::create(prefix_, layout_, test_identity(), Windows::kPrivate);
    ASSERT_TRUE(segments.ok());
    EXPECT_EQ(num_files(), 8u);  // Control and metrics of 2 sessions, 2 ranks.
    std::vector<std::string> names;
    for (const auto& [name, fd] : segments.value().handles(Role::kFfn, 1)) names.push_back(name);
    EXPECT_EQ(
        names,
        (std::vector<std::string>{segment_name(prefix_, Role::kFfn, 1, SegmentKind::kControl),
                                  segment_name(prefix_, Role::kFfn, 1, SegmentKind::kMetrics)}));
    EXPECT_LT(InstanceSegments::total_bytes(layout_, Windows::kPrivate),
              InstanceSegments::total_bytes(layout_));
}

// Goal: both sides meet through segments attached by name. Method: one round trip through lane and
// scan, each over its own mappings. Oracle: the row and the acknowledgement arrive.
TEST_F(InstanceSegmentsTest, CarriesARoundBetweenAttachedSides) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok());
    auto dispatch = ShmDispatchTransport::attach(config(), 1);
    ASSERT_TRUE(dispatch.ok()) << dispatch.error().message;
    auto returns = ShmReturnTransport::attach(config(), 0);
    ASSERT_TRUE(returns.ok()) << returns.error().message;
    const ExpertPlacement placement = test_placement(2, 2);
    DispatchLane lane(*dispatch.value(), small_geometry(), 1);
    ReadyScan scan(*returns.value(), placement);

    ASSERT_TRUE(lane.may_store());
    lane.begin(1);
    lane.put({0, 7}, 2, 0, std::vector<std::byte>(512, std::byte{5}));
    EXPECT_EQ(segments.value().lane_words(0, 1, 1).round, 0) << "never used";
    lane.publish(DispatchMode::kAsync);
    const LaneWords open = segments.value().lane_words(0, 1, 1);
    EXPECT_EQ(open.round, 1);
    EXPECT_EQ(open.layer_id, 1);
    EXPECT_EQ(open.acknowledged, 0);
    scan.take(scan.scan(0));
    ASSERT_EQ(scan.taken().size(), 1u);
    EXPECT_EQ(returns.value()->token_row(1, 1, 2, 0)[511], std::byte{5});
    scan.put_result(1, 1, 2, 0, std::vector<std::byte>(512, std::byte{6}));
    scan.acknowledge_taken();
    EXPECT_EQ(segments.value().lane_words(0, 1, 1).acknowledged, 1);
    ASSERT_EQ(lane.poll(), RoundState::kReady);
    EXPECT_EQ(lane.row(2, 0)[511], std::byte{6});
    EXPECT_TRUE(lane.may_store());

    returns.value()->heartbeat().start(321);
    EXPECT_EQ(dispatch.value()->peer(0, 5).heartbeat.pid, 321);
    EXPECT_EQ(segments.value().ffn_control(0).heartbeat_words().pid, 321);
}

// Goal: a worker needs no name. Method: attach each role by the handles that it is given, after all
// names were removed, two-phase areas too. Oracle: it attaches; with one handle less it does not.
TEST_F(InstanceSegmentsTest, AttachesByDescriptorsWithoutNames) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok());
    ASSERT_EQ(Segment::remove_leftovers(instance_), 16u);
    AttachConfig attach = config();
    for (const auto& [name, fd] : segments.value().handles(Role::kAttention, 1)) {
        attach.segment_fds[name] = fd;
    }
    EXPECT_EQ(attach.segment_fds.size(), 4u + 2u * 3u);
    const auto dispatch = ShmDispatchTransport::attach(attach, 1);
    ASSERT_TRUE(dispatch.ok()) << dispatch.error().message;
    EXPECT_TRUE(dispatch.value()->two_phase().ok());
    EXPECT_TRUE(attach_metrics(attach, Role::kAttention, 1).ok());

    attach.segment_fds.erase(segment_name(prefix_, Role::kFfn, 1, SegmentKind::kControl));
    const auto missing = ShmDispatchTransport::attach(attach, 1);
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code, Code::kNotFound);
    EXPECT_THAT(missing.error().message, HasSubstr("-ffn1-control"));
}

TEST_F(InstanceSegmentsTest, RefusesASideThatWasStartedForAnotherModelOrGeometry) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok());
    AttachConfig other_model = config();
    other_model.identity.model_identity = "model-b";
    const auto dispatch = ShmDispatchTransport::attach(other_model, 0);
    ASSERT_FALSE(dispatch.ok());
    EXPECT_EQ(dispatch.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(dispatch.error().message,
                AllOf(HasSubstr("model identity"), HasSubstr("model-a"), HasSubstr("model-b")));

    AttachConfig other_size = config();
    Geometry geometry = small_geometry();
    geometry.num_experts = 9;
    other_size.layout = WindowLayout::compute(geometry).value();
    const auto returns = ShmReturnTransport::attach(other_size, 0);
    ASSERT_FALSE(returns.ok());
    EXPECT_THAT(returns.error().message,
                AllOf(HasSubstr("num_experts"), HasSubstr("'8'"), HasSubstr("'9'")));
}

TEST_F(InstanceSegmentsTest, RefusesAPlaceThatDoesNotExist) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok());
    const auto outside = ShmDispatchTransport::attach(config(), 2);
    ASSERT_FALSE(outside.ok());
    EXPECT_EQ(outside.error().code, Code::kInvalidArgument);
    EXPECT_THAT(outside.error().message, HasSubstr("session 2 does not exist"));
    AttachConfig few = config();
    few.peer_doorbells.pop_back();
    const auto returns = ShmReturnTransport::attach(few, 0);
    ASSERT_FALSE(returns.ok());
    EXPECT_THAT(returns.error().message, HasSubstr("one for each of 2 peers; it got 1"));
}

// Goal: whatever a worker has stored into its control segment, its successor can attach. Method:
// every byte of header and context is spoilt. Oracle: both are as they were made, but for run_flag,
// which is for others to set; and both sides attach.
TEST_F(InstanceSegmentsTest, RestoresWhatAWorkerThatIsGoneHasSpoilt) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok()) << segments.error().message;
    for (const Role role : {Role::kFfn, Role::kAttention}) {
        const std::string name = segment_name(prefix_, role, 1, SegmentKind::kControl);
        const uint64_t bytes =
            role == Role::kFfn ? layout_.ffn_control.total_bytes : layout_.attention_control_bytes;
        const Segment control = Segment::attach(name, bytes, Segment::Access::kReadWrite).value();
        const ConstControlView view(control.const_data());
        const ScheduleContext sound = view.context();
        std::memset(control.data(), 0x5a, kHeaderOffset + kHeaderBytes);
        EXPECT_FALSE(ShmDispatchTransport::attach(config(), 0).ok() &&
                     ShmReturnTransport::attach(config(), 0).ok());
        segments.value().restore(role, 1);
        const ScheduleContext context = view.context();
        EXPECT_EQ(std::memcmp(&context.common, &sound.common, sizeof(sound.common)), 0);
        EXPECT_EQ(std::memcmp(&context.attention, &sound.attention, sizeof(sound.attention)), 0);
        EXPECT_EQ(std::memcmp(&context.ffn, &sound.ffn, sizeof(sound.ffn)), 0);
        EXPECT_EQ(context.control.run_flag, 0x5a5a5a5a);
        EXPECT_TRUE(ShmDispatchTransport::attach(config(), 1).ok());
        EXPECT_TRUE(ShmReturnTransport::attach(config(), 1).ok());
    }
}

// Goal: after an FFN worker died, out_num says how many descriptors it was executing, until its
// successor scans. Method: restore() with such a number, and with one that cannot be. Oracle: the
// word, before and after.
TEST_F(InstanceSegmentsTest, KeepsHowManyDescriptorsAWorkerDiedWith) {
    const Result<InstanceSegments> segments = create();
    ASSERT_TRUE(segments.ok()) << segments.error().message;
    const auto control_of = [&](Role role) {
        const uint64_t bytes =
            role == Role::kFfn ? layout_.ffn_control.total_bytes : layout_.attention_control_bytes;
        return Segment::attach(segment_name(prefix_, role, 1, SegmentKind::kControl),
                               bytes,
                               Segment::Access::kReadWrite)
            .value();
    };
    const Segment ffn = control_of(Role::kFfn);
    uint32_t& out_num = ControlView(ffn.data()).context().ffn.out_num;
    out_num = small_geometry().num_sessions;
    segments.value().restore(Role::kFfn, 1);
    EXPECT_EQ(out_num, small_geometry().num_sessions);
    const auto returns = ShmReturnTransport::attach(config(), 1);
    ASSERT_TRUE(returns.ok()) << returns.error().message;
    const ExpertPlacement placement = test_placement(2, 2);
    const ReadyScan scan(*returns.value(), placement);
    EXPECT_EQ(out_num, 0u) << "the successor's";

    out_num = small_geometry().num_sessions + 1;
    segments.value().restore(Role::kFfn, 1);
    EXPECT_EQ(out_num, 0u) << "no pass has more than one of each session";

    const Segment attention = control_of(Role::kAttention);
    uint32_t& no_pass = ControlView(attention.data()).context().ffn.out_num;
    no_pass = 1;
    segments.value().restore(Role::kAttention, 1);
    EXPECT_EQ(no_pass, 0u) << "it has no passes";
}

TEST_F(InstanceSegmentsTest, SaysWhichSegmentIsMissing) {
    const auto dispatch = ShmDispatchTransport::attach(config(), 0);
    ASSERT_FALSE(dispatch.ok());
    EXPECT_EQ(dispatch.error().code, Code::kNotFound);
    EXPECT_THAT(dispatch.error().message, HasSubstr(prefix_ + "-attn0-control"));
}

}  // namespace
}  // namespace afd::schedule
