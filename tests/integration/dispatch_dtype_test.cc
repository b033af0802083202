// SPDX-License-Identifier: Apache-2.0
//
// How rows travel to the experts, on the real system: dispatch_dtype = bf16, int8, fp8.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using ::testing::HasSubstr;
using Flags = std::vector<std::string>;

const std::string& int8_model() {
    static const std::string directory = quantised_model({"--experts", "int8"});
    return directory;
}

Flags with(const Flags& flags, const Flags& more) {
    Flags all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

// With smooth scales, calibrated on a short text.
const std::string& smooth_model() {
    static const std::string directory =
        quantised_model({"--experts", "int8", "--smooth", AFD_DEMO_MODEL "/prompts.txt"});
    return directory;
}

// A = 1, 2 and F = 1, 2; windows and two phases; the shared experts on either side; and colocated.
const std::vector<Flags> kTopologies = {
    {"--topology", "colocated"},
    {"--micro-batches", "2"},
    {"--attention-workers", "2", "--shared-experts", "attention", "--micro-batch-size", "16"},
    {"--ffn-workers", "2", "--ffn-threads", "2"},
    {"--attention-workers",
     "2",
     "--ffn-workers",
     "2",
     "--dispatch",
     "two_phase",
     "--prefill-tokens-max",
     "100",
     "--two-phase-block",
     "33"},
    {"--ffn-workers",
     "2",
     "--dispatch",
     "two_phase",
     "--two-phase-block",
     "16",
     "--shared-experts",
     "attention"},
};

std::vector<client::Generate> requests() {
    return mixed_requests(8, 257, 11);
}

// One colocated worker with one thread, one request after another.
std::vector<Reply> first_run(const Flags& flags) {
    Instance instance(with(flags, {"--topology", "colocated", "--attention-threads", "1"}));
    instance.wait_ready();
    return run_one_after_another(instance, requests());
}

void expect_same_bits_everywhere(const std::vector<Reply>& expected,
                                 const Flags& flags,
                                 const std::string& dtype) {
    for (const Flags& topology : kTopologies) {
        Instance instance(with(with(flags, topology), {"--dispatch-dtype", dtype}));
        instance.wait_ready();
        EXPECT_EQ(instance.status().dispatch_dtype(), dtype);
        std::string what = dtype;
        for (const std::string& flag : topology) what += " " + flag;
        expect_same_bits(expected, run_all_at_once(instance, requests()), what);
        EXPECT_EQ(instance.stop(), 0);
    }
}

// Goal: int8 experts quantise their rows one by one, so it makes no difference where.
TEST(DispatchDtype, Int8RowsHaveTheBitsOfBf16OnesWhereExpertsAreInt8) {
    const Flags model = {"--model", int8_model()};
    expect_same_bits_everywhere(
        first_run(with(model, {"--dispatch-dtype", "bf16"})), model, "int8");
}

// Goal: with smooth scales a token's row is another one for every expert, and still it makes no
// difference who quantises it. Method: colocated; bf16 rows that FFN workers quantise; int8 rows,
// in windows and two phases.
TEST(DispatchDtype, RowsWithSmoothScalesHaveTheSameBitsWhereverTheyAreQuantised) {
    const Flags model = {"--model", smooth_model()};
    const std::vector<Reply> expected = first_run(model);
    EXPECT_NE(expected, first_run({"--model", int8_model()}));
    expect_same_bits_everywhere(expected, model, "bf16");
    expect_same_bits_everywhere(expected, model, "int8");
    Instance routing(with(model, {"--router", "ffn", "--ffn-workers", "2"}));
    routing.wait_ready();
    EXPECT_THAT(routing.status().numeric_class(), HasSubstr("(experts int8 smooth)"));
    expect_same_bits(expected, run_all_at_once(routing, requests()), "router = ffn");
    EXPECT_EQ(routing.stop(), 0);
}

// Goal: fp8 rows are a numeric class of their own, in which promise 1 holds.
TEST(DispatchDtype, Fp8RowsHaveTheSameBitsInEveryTopologyAndNotThoseOfBf16) {
    const std::vector<Reply> expected = first_run({"--dispatch-dtype", "fp8"});
    EXPECT_NE(expected, first_run({}));
    expect_same_bits_everywhere(expected, {}, "fp8");
}

// Goal: rows that a killed worker's successor finds in its window are executed as they were sent.
TEST(DispatchDtype, KilledWorkersComeBackWithTheSameBitsOfInt8Rows) {
    Instance instance({"--model",
                       int8_model(),
                       "--ffn-workers",
                       "2",
                       "--dispatch-dtype",
                       "int8",
                       "--stop-timeout-ms",
                       "0"});
    instance.wait_ready();
    expect_same_bits_through_kills(instance, long_request(600), {{"ffn", 1}, {"attention", 0}});
    EXPECT_EQ(instance.stop(), 0);
}

TEST(DispatchDtype, TheStatusNamesTheClassOfFp8AndInt8NeedsInt8Experts) {
    Instance instance({"--dispatch-dtype", "fp8"});
    instance.wait_ready();
    EXPECT_THAT(instance.status().numeric_class(), HasSubstr("/fp8"));
    EXPECT_EQ(instance.stop(), 0);
    Instance refused({"--dispatch-dtype", "int8"});
    EXPECT_NE(refused.wait_exit(), 0);
    EXPECT_THAT(refused.log(),
                HasSubstr("dispatch_dtype = 'int8': only experts with int8 weights take int8 rows, "
                          "and those of the model are bf16"));
}

}  // namespace
}  // namespace afd::test
