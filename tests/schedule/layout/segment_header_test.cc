// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/segment_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SegmentHeader header() {
    return make_segment_header(small_geometry(), test_identity(), Role::kFfn, 1).value();
}

template <typename Spoil>
void expect_mismatch(const char* field, const char* found, const char* expected, Spoil&& spoil) {
    SegmentHeader spoiled = header();
    spoil(spoiled);
    const Result<> result = check(spoiled, header());
    ASSERT_FALSE(result.ok()) << field;
    EXPECT_EQ(result.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(result.error().message,
                AllOf(HasSubstr(std::string("segment's ") + field + " is"),
                      HasSubstr(std::string("'") + found + "'"),
                      HasSubstr(std::string("'") + expected + "'")));
}

TEST(SegmentHeader, AgreesWithItself) {
    EXPECT_TRUE(check(header(), header()).ok());
}

TEST(SegmentHeader, NamesTheFieldAndBothValuesOfAMismatch) {
    expect_mismatch("magic", "0", "3552574044140488257", [](auto& h) { h.magic = 0; });
    expect_mismatch("layout version", "9", "5", [](auto& h) { h.layout_version = 9; });
    expect_mismatch("index", "0", "1", [](auto& h) { h.index = 0; });
    expect_mismatch("role", "2", "1", [](auto& h) { h.role = Role::kAttention; });
    expect_mismatch("instance id", "5", "81985529216486895", [](auto& h) { h.instance_id = 5; });
    expect_mismatch("micro_batch_size", "4", "3", [](auto& h) { h.geometry.micro_batch_size = 4; });
    expect_mismatch("num_ffn_workers", "7", "2", [](auto& h) { h.geometry.num_ffn_workers = 7; });
    expect_mismatch(
        "model identity", "nodel-a", "model-a", [](auto& h) { h.model_identity[0] = 'n'; });
    expect_mismatch(
        "numeric class", "qortable-1", "portable-1", [](auto& h) { h.numeric_class[0] = 'q'; });
    expect_mismatch("router", "1", "0", [](auto& h) { h.router = RouterPlacement::kFfn; });
    expect_mismatch("row dtype", "2", "0", [](auto& h) { h.row_dtype = RowDtype::kFp8; });
}

// Another process wrote the bytes: a text without end must not be read beyond its array.
TEST(SegmentHeader, ReadsATextWithoutEndOnlyToTheEndOfItsArray) {
    SegmentHeader spoiled = header();
    spoiled.numeric_class.fill('x');
    const Result<> result = check(spoiled, header());
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message, HasSubstr("'" + std::string(128, 'x') + "'"));
}

TEST(SegmentHeader, RefusesATextThatIsTooLong) {
    InstanceIdentity identity = test_identity();
    identity.numeric_class = std::string(128, 'x');
    const auto result = make_segment_header(small_geometry(), identity, Role::kFfn, 0);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr("at most 127 bytes"));
}

}  // namespace
}  // namespace afd::schedule
