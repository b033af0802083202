// SPDX-License-Identifier: Apache-2.0
//
// Goal: no side attaches to a segment that is not what it was told, whatever kind it is.
// Method: one segment of a sound instance is spoiled: every byte of a control segment's header, and
// of every kind its size. Then all sides attach. Oracle: exactly those that use the segment refuse,
// with its name; none dies of a fault.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "schedule/shared_memory/instance_segments.h"
#include "schedule/shared_memory/shm_transport.h"
#include "schedule/shared_memory/two_phase_memory.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CorruptedSegments : public ::testing::Test {
  protected:
    CorruptedSegments()
        : prefix_(
              segment_prefix("spoiled" + std::to_string(::getpid()), test_identity().instance_id)),
          layout_(WindowLayout::compute(small_geometry()).value()),
          doorbells_(3),
          segments_(InstanceSegments::create(prefix_, layout_, test_identity()).value()) {}

    ~CorruptedSegments() override { Segment::remove_leftovers(instance_); }

    std::string name(Role role, uint32_t index, SegmentKind kind) const {
        return segment_name(prefix_, role, index, kind);
    }

    // The errors of all sides that refuse: for each index the attention worker's, then the FFN
    // worker's.
    std::vector<std::string> refusals() const {
        const AttachConfig config{
            prefix_, layout_, test_identity(), doorbells_[0], {doorbells_[1], doorbells_[2]}};
        std::vector<std::string> messages;
        const auto note = [&](const auto& result) {
            if (!result.ok()) messages.push_back(result.error().message);
        };
        const auto note_both = [&](const auto& transport) {
            note(transport);
            if (transport.ok()) note(transport.value()->two_phase());
        };
        for (const uint32_t index : {0u, 1u}) {
            note_both(ShmDispatchTransport::attach(config, index));
            note_both(ShmReturnTransport::attach(config, index));
        }
        return messages;
    }

    // A side attaches its own segments and those of all its peers: with two of each role three of
    // the sides that know a kind.
    static constexpr size_t kUsers = 3;

    std::string instance_;
    std::string prefix_;
    WindowLayout layout_;
    EventFds doorbells_;
    InstanceSegments segments_;
};

// Bytes of a header that mean something: behind the end of a text, and in the reserve, nothing
// does.
bool is_compared(size_t byte) {
    const SegmentHeader sound =
        make_segment_header(small_geometry(), test_identity(), Role::kFfn, 0).value();
    const auto in_text = [&](size_t offset, const std::array<char, 128>& text) {
        return byte > offset + std::string(text.data()).size() && byte < offset + text.size();
    };
    return byte < offsetof(SegmentHeader, reserve) &&
           !in_text(offsetof(SegmentHeader, model_identity), sound.model_identity) &&
           !in_text(offsetof(SegmentHeader, numeric_class), sound.numeric_class);
}

TEST_F(CorruptedSegments, AHeaderWithOneOtherByteIsRefusedByAllItsUsers) {
    constexpr size_t kHeaderAt = 1024;
    for (const Role role : {Role::kFfn, Role::kAttention}) {
        const std::string control = name(role, 1, SegmentKind::kControl);
        const uint64_t bytes =
            role == Role::kFfn ? layout_.ffn_control.total_bytes : layout_.attention_control_bytes;
        const Segment segment =
            Segment::attach(control, bytes, Segment::Access::kReadWrite).value();
        ASSERT_TRUE(refusals().empty());
        size_t num_compared = 0;
        for (size_t byte = 0; byte < sizeof(SegmentHeader); ++byte) {
            segment.data()[kHeaderAt + byte] ^= std::byte{0x20};
            const std::vector<std::string> refused = refusals();
            segment.data()[kHeaderAt + byte] ^= std::byte{0x20};
            if (!is_compared(byte)) {
                EXPECT_TRUE(refused.empty()) << byte;
                continue;
            }
            ++num_compared;
            ASSERT_EQ(refused.size(), kUsers) << byte;
            for (const std::string& message : refused) {
                EXPECT_THAT(message, StartsWith(control + ": the segment's ")) << byte;
                EXPECT_THAT(message, HasSubstr("but this process expects")) << byte;
            }
        }
        EXPECT_GE(num_compared, 70u);
        ASSERT_TRUE(refusals().empty());
    }
}

// Windows and two-phase areas have no header: their control segment speaks for them, and their
// size. A file that is shorter than its mapping would be a SIGBUS at the first access.
TEST_F(CorruptedSegments, AnotherSizeIsRefusedByAllItsUsers) {
    for (const Role role : {Role::kFfn, Role::kAttention}) {
        for (const SegmentKind kind :
             {SegmentKind::kWindow, SegmentKind::kControl, SegmentKind::kTwoPhase}) {
            const std::string spoiled = name(role, 0, kind);
            const std::string file = "/dev/shm" + spoiled;
            const uint64_t bytes = std::filesystem::file_size(file);
            const std::string sound = file + "-sound";
            std::filesystem::rename(file, sound);
            for (const uint64_t other : {uint64_t{1}, bytes - 1, bytes + 4096}) {
                const auto in_its_place = Segment::create_sealed(spoiled, other);
                ASSERT_TRUE(in_its_place.ok()) << in_its_place.error().message;
                const std::vector<std::string> refused = refusals();
                ASSERT_EQ(refused.size(), kUsers) << spoiled << " of " << other;
                for (const std::string& message : refused) {
                    EXPECT_THAT(message, HasSubstr(spoiled));
                    EXPECT_THAT(message, HasSubstr(std::to_string(other)));
                    EXPECT_THAT(message, HasSubstr(std::to_string(bytes)));
                }
                Segment::unlink(spoiled);
            }
            std::filesystem::rename(sound, file);
            ASSERT_TRUE(refusals().empty());
        }
    }
}

// What afdd hands over of a two-phase round: of that round, as large as both sides know from offer
// and grants, and only until it is closed.
TEST_F(CorruptedSegments, ARoundsSegmentOfAnotherRoundOrSizeIsNotMapped) {
    using enum TwoPhaseSegment;
    const auto segments = [&] {
        return TwoPhaseRoundSegments{Segment::create(prefix_ + "-receive", 8192).value(),
                                     Segment::create(prefix_ + "-return", 4096).value()};
    };
    const auto drop_names = [&] {
        Segment::unlink(prefix_ + "-receive");
        Segment::unlink(prefix_ + "-return");
    };
    HandedTwoPhaseMemory memory;
    const TwoPhaseKey receive{kReceive, 1, 0, 7};
    const TwoPhaseKey results{kReturn, 1, 0, 7};
    const auto refusal = [&](const TwoPhaseKey& key, uint64_t bytes) {
        const auto mapped = memory.map(key, bytes, Segment::Access::kReadWrite);
        return mapped.ok() ? "mapped" : mapped.error().message;
    };
    EXPECT_FALSE(memory.has_round_of(receive));
    memory.hand_over(1, 0, 7, segments());
    drop_names();
    EXPECT_TRUE(memory.has_round_of(receive));
    EXPECT_EQ(refusal(receive, 8192), "mapped");
    EXPECT_EQ(refusal(results, 4096), "mapped");
    EXPECT_EQ(refusal(results, 8192),
              "the return segment of round 7 of rank 1 with session 0 has 4096 bytes instead of "
              "8192");
    EXPECT_EQ(refusal({kReceive, 1, 0, 8}, 8192),
              "afdd has handed over no memory for round 8 of rank 1 with session 0");
    EXPECT_THAT(refusal({kReceive, 1, 1, 7}, 8192), HasSubstr("with session 1"));

    // The next round's takes the place of what was not closed.
    memory.hand_over(1, 0, 8, segments());
    drop_names();
    EXPECT_FALSE(memory.has_round_of(receive));
    memory.unmap({kReceive, 1, 0, 8});
    EXPECT_TRUE(memory.has_round_of({kReturn, 1, 0, 8}));
    memory.unmap({kReturn, 1, 0, 8});
    EXPECT_FALSE(memory.has_round_of({kReturn, 1, 0, 8}));
}

// The segments of a two-phase round: as large as both sides know from offer and grants.
TEST_F(CorruptedSegments, ARoundsSegmentOfAnotherSizeIsNotMapped) {
    NamedTwoPhaseMemory memory(prefix_);
    for (const TwoPhaseSegment kind : {TwoPhaseSegment::kReceive, TwoPhaseSegment::kReturn}) {
        const std::string spoiled = two_phase_segment_name(prefix_, kind, 1, 0, 7);
        const Segment segment = Segment::create(spoiled, 8192).value();
        const TwoPhaseKey key{kind, 1, 0, 7};
        ASSERT_TRUE(memory.map(key, 8192, Segment::Access::kReadWrite).ok());
        memory.unmap(key);
        for (const uint64_t other : {0, 4096, 8191, 16384}) {
            std::filesystem::resize_file("/dev/shm" + spoiled, other);
            const auto mapped = memory.map(key, 8192, Segment::Access::kReadWrite);
            ASSERT_FALSE(mapped.ok()) << other;
            EXPECT_THAT(mapped.error().message, HasSubstr(spoiled));
        }
        Segment::unlink(spoiled);
    }
}

}  // namespace
}  // namespace afd::schedule
