// SPDX-License-Identifier: Apache-2.0
//
// How keys and values are kept, on the real system: kv_dtype = bf16, int8, fp8.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using ::testing::HasSubstr;
using KvFlags = std::vector<std::string>;

// The demo model has a latent of 64 and a rotated key of 16 in each of its layers.
constexpr uint64_t kBf16Bytes = 2 * (64 + 16);
constexpr uint64_t kTileBytes = 64 + 2 * 16 + 4;

std::vector<client::Generate> kv_requests() {
    std::vector<client::Generate> requests = mixed_requests(8, 257, 23);
    // Twice, so that the prefix cache gives away rows that another request has written.
    requests.push_back(requests[3]);
    requests.push_back(requests[5]);
    return requests;
}

// The model to serve with a kv_dtype: for int8_channel a copy with factors, measured on a text.
std::string model_for(const std::string& dtype) {
    if (dtype != "int8_channel") return test_model();
    static const std::string measured = [] {
        const std::string directory = make_directory() + "/model";
        std::filesystem::copy(test_model(), directory, std::filesystem::copy_options::recursive);
        const Outcome outcome = run_program(
            {program("afd-quantize"), directory, "--kv-scales", AFD_DEMO_MODEL "/prompts.txt"},
            directory);
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        return directory;
    }();
    return measured;
}

std::vector<Reply> colocated_replies(const std::string& dtype) {
    Instance instance({"--model",
                       model_for(dtype),
                       "--topology",
                       "colocated",
                       "--attention-threads",
                       "1",
                       "--prefix-cache",
                       "false",
                       "--kv-dtype",
                       dtype});
    instance.wait_ready();
    return run_one_after_another(instance, kv_requests());
}

class KvDtypeEndToEnd : public testing::TestWithParam<std::string> {};

// Goal: a class of its own, in which promise 1 holds. Oracle: one colocated thread without the
// prefix cache, one request after another.
TEST_P(KvDtypeEndToEnd, HasTheSameBitsInEveryTopologyAndNotThoseOfBf16) {
    const std::vector<Reply> expected = colocated_replies(GetParam());
    EXPECT_NE(expected, colocated_replies("bf16"));
    const std::vector<KvFlags> topologies = {
        {"--topology", "colocated", "--micro-batch-size", "5", "--micro-batches", "3"},
        {"--attention-workers", "2", "--micro-batch-size", "48", "--router", "ffn"},
        {"--ffn-workers", "2", "--dispatch", "two_phase", "--prefill-tokens-max", "100"}};
    for (KvFlags flags : topologies) {
        flags.insert(flags.end(), {"--kv-dtype", GetParam(), "--model", model_for(GetParam())});
        Instance instance(flags);
        instance.wait_ready();
        expect_same_bits(expected, run_all_at_once(instance, kv_requests()), flags[1]);
        expect_same_bits(expected, run_all_at_once(instance, kv_requests()), flags[1] + " again");
        EXPECT_EQ(instance.stop(), 0);
    }
}

// Goal: after a crash rows are computed and rounded anew, and are the same.
TEST_P(KvDtypeEndToEnd, AKilledWorkerComesBackWithTheSameBits) {
    Instance instance({"--ffn-workers",
                       "2",
                       "--kv-dtype",
                       GetParam(),
                       "--model",
                       model_for(GetParam()),
                       "--stop-timeout-ms",
                       "0"});
    instance.wait_ready();
    expect_same_bits_through_kills(instance, long_request(600), {{"attention", 0}, {"ffn", 1}});
    EXPECT_EQ(instance.stop(), 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes,
                         KvDtypeEndToEnd,
                         testing::Values("int8", "fp8", "int8_channel"),
                         [](const auto& param_info) { return param_info.param; });

TEST(KvDtype, FactorsOfChannelsHaveToBeMeasured) {
    Instance refused({"--kv-dtype", "int8_channel"});
    EXPECT_NE(refused.wait_exit(), 0);
    EXPECT_THAT(refused.log(),
                HasSubstr("kv_scales.safetensors with the factors of the channels is missing; "
                          "measure them on a text: afd-quantize "));
}

TEST(KvDtype, TheStatusNamesTheClassAndTheBytes) {
    Instance plain;
    plain.wait_ready();
    const uint64_t num_layers = plain.status().kv_bytes_per_token() / kBf16Bytes;
    EXPECT_EQ(plain.status().kv_bytes_per_token(), num_layers * kBf16Bytes);
    EXPECT_EQ(plain.status().kv_dtype(), "bf16");
    EXPECT_EQ(plain.stop(), 0);
    Instance instance({"--kv-dtype", "int8"});
    instance.wait_ready();
    EXPECT_EQ(instance.status().kv_bytes_per_token(), num_layers * kTileBytes);
    EXPECT_THAT(instance.status().numeric_class(), HasSubstr("(kv int8)"));
    EXPECT_THAT(
        instance.afdctl({"status"}).output,
        HasSubstr("kv        int8   " + std::to_string(num_layers * kTileBytes) + " bytes"));
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
