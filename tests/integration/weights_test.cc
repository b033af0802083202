// SPDX-License-Identifier: Apache-2.0
//
// Weights on the real system: quantised checkpoints, and packed weights kept on disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/integration/workload.h"

namespace afd::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Format {
    const char* name;
    std::vector<std::string> flags;  // Of afd-quantize.
    const char* description;
    std::vector<std::string> served_with = {};
};

class QuantisedModel : public testing::TestWithParam<Format> {};

// Goal: promise 1 holds for quantised weights, and the status says what is served.
// Method: eight requests to one colocated worker, one after another; then all at once to two other
// topologies. Oracle: the bits of the first run.
TEST_P(QuantisedModel, HasTheSameBitsInEveryTopology) {
    const std::string model = quantised_model(GetParam().flags);
    const auto flags = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--model", model});
        more.insert(more.end(), GetParam().served_with.begin(), GetParam().served_with.end());
        return more;
    };
    std::vector<client::Generate> requests;
    std::vector<Reply> expected;
    {
        Instance instance(flags({"--topology", "colocated", "--attention-threads", "1"}));
        instance.wait_ready();
        requests = mixed_requests(8, instance.status().vocab_size(), 7);
        expected = run_one_after_another(instance, requests);
        EXPECT_THAT(instance.status().numeric_class(), HasSubstr(GetParam().description));
        const Outcome status = instance.afdctl({"status"});
        EXPECT_THAT(status.output, HasSubstr(GetParam().description));
    }
    for (const Reply& reply : expected) EXPECT_EQ(reply.error, "");
    for (const std::vector<std::string>& topology :
         {std::vector<std::string>{
              "--ffn-workers", "2", "--micro-batches", "2", "--shared-experts", "attention"},
          std::vector<std::string>{
              "--attention-workers", "2", "--ffn-threads", "2", "--micro-batch-size", "16"}}) {
        Instance instance(flags(topology));
        instance.wait_ready();
        expect_same_bits(expected, run_all_at_once(instance, requests), topology[0]);
        EXPECT_EQ(instance.stop(), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    QuantisedModel,
    testing::Values(Format{"Int8", {"--experts", "int8"}, "/bf16/residual-fp32 (experts int8)"},
                    Format{"Int8All",
                           {"--experts", "int8", "--attention", "int8"},
                           "/bf16/residual-fp32 (experts int8, attention int8)"},
                    Format{"Int4", {"--experts", "int4"}, "/bf16/residual-fp32 (experts int4-g32)"},
                    Format{"Int4Fp16",
                           {"--experts", "int4", "--scale-dtype", "fp16"},
                           "/bf16/residual-fp32 (experts int4-g32-fp16)"},
                    Format{"Int4WithInt8Rows",
                           {"--experts", "int4"},
                           "/bf16/residual-fp32 (experts int4-g32 with int8 rows)",
                           {"--int4-rows", "int8"}}),
    [](const auto& param_info) { return param_info.param.name; });

// What an instance with this cache answers, and what it logged.
struct CachedRun {
    std::vector<Reply> replies;
    std::string log;
};

CachedRun run_with_cache(const std::string& cache, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--weight-cache", cache});
    Instance instance(flags);
    instance.wait_ready();
    const auto requests = mixed_requests(4, instance.status().vocab_size(), 3);
    CachedRun run{.replies = run_one_after_another(instance, requests), .log = {}};
    for (const Reply& reply : run.replies) EXPECT_EQ(reply.error, "");
    EXPECT_EQ(instance.stop(), 0);
    run.log = instance.log();
    return run;
}

TEST(QuantisedModel, OnlyInt4ExpertsTakeOtherRows) {
    for (const bool checks : {true, false}) {
        std::vector<std::string> flags = {"--int4-rows", "int8"};
        if (checks) flags.push_back("--check-config");
        Instance instance(flags);
        EXPECT_EQ(instance.wait_exit(), 2);
        EXPECT_THAT(instance.log(),
                    HasSubstr("int4_rows = 'int8': the model's experts are bf16, and only int4 "
                              "ones take such rows"));
    }
}

// Goal: what the rows are is another class, whose bits differ, over the same packed weights.
TEST(QuantisedModel, OtherRowsShareTheWeightCache) {
    const std::string model = quantised_model({"--experts", "int4"});
    const std::string cache = make_directory() + "/cache";
    const CachedRun plain = run_with_cache(cache, {"--model", model});
    const CachedRun int8 = run_with_cache(cache, {"--model", model, "--int4-rows", "int8"});
    EXPECT_THAT(int8.log, HasSubstr("6 were there, 0 packed now, 0 in private memory"));
    EXPECT_NE(plain.replies, int8.replies);
}

// Goal: afd-quantize measures what int4_rows costs, and writes nothing.
TEST(QuantisedModel, AfdQuantizeMeasuresTheLossOfInt8Rows) {
    const std::string directory = make_directory();
    const auto quantise = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), program("afd-quantize"));
        return run_program(arguments, directory);
    };
    const std::string text = AFD_DEMO_MODEL "/prompts.txt";
    const std::string model = quantised_model({"--experts", "int4"});
    const Outcome measured = quantise({model, "--int4-rows", "int8", "--validate", text});
    EXPECT_EQ(measured.exit_status, 0);
    EXPECT_THAT(measured.output, HasSubstr("  experts int4-g32 with int8 rows "));
    const Outcome plain = quantise({AFD_DEMO_MODEL, "--int4-rows", "int8", "--validate", text});
    EXPECT_EQ(plain.exit_status, 1);
    EXPECT_THAT(plain.output, HasSubstr("int4_rows = 'int8': the model's experts are bf16"));
    const Outcome both =
        quantise({model, "--int4-rows", "int8", "--validate", text, "--experts", "int4"});
    EXPECT_EQ(both.exit_status, 2);
    EXPECT_THAT(both.output, HasSubstr("go without --out, --experts"));
}

TEST(QuantisedModel, ServesNoHalfWrittenCheckpoint) {
    const std::string model = quantised_model({"--experts", "int4", "--group", "64"});
    fs::remove(model + "/config.json");
    Instance instance({"--model", model});
    EXPECT_EQ(instance.wait_exit(), 3);
    EXPECT_THAT(instance.log(), HasSubstr("config.json: no such file"));
}

// Goal: weights are packed by whoever starts first, and every later worker maps the same files,
// however the experts are split; damage is mended, and none of it changes a bit.
TEST(WeightCache, IsSharedByWorkersSplitsAndRestarts) {
    const std::string cache = make_directory() + "/cache";
    const CachedRun off = run_with_cache("off", {});
    EXPECT_THAT(off.log, Not(HasSubstr("experts of ")));
    const CachedRun first = run_with_cache(cache, {"--ffn-workers", "2"});
    expect_same_bits(off.replies, first.replies, "packed now");
    EXPECT_THAT(first.log, HasSubstr("0 in private memory"));
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--ffn-workers", "3"},
          std::vector<std::string>{"--topology", "colocated"}}) {
        const CachedRun again = run_with_cache(cache, flags);
        expect_same_bits(off.replies, again.replies, flags[1]);
        EXPECT_THAT(again.log, HasSubstr("6 were there, 0 packed now, 0 in private memory"));
    }
    for (const auto& entry : fs::recursive_directory_iterator(cache)) {
        if (entry.path().filename() != "0003.experts") continue;
        fs::permissions(entry.path(), fs::perms::owner_all);
        fs::resize_file(entry.path(), entry.file_size() - 1);
    }
    const CachedRun mended = run_with_cache(cache, {});
    expect_same_bits(off.replies, mended.replies, "a damaged file");
    EXPECT_THAT(mended.log, HasSubstr("0003.experts: has "));
    EXPECT_THAT(mended.log, HasSubstr("5 were there, 1 packed now"));
}

// Goal: a worker that finds damage in what it maps, before or in a request, costs time and nothing
// else. Method: one byte of an expert of each of two layers is changed. Oracle: the replies of an
// instance without a cache; the damaged layers, both, are packed by the successor.
TEST(WeightCache, DamageThatIsFoundInUseChangesNoReply) {
    const std::string cache = make_directory() + "/cache";
    const CachedRun off = run_with_cache("off", {});
    static_cast<void>(run_with_cache(cache, {}));
    for (const auto& entry : fs::recursive_directory_iterator(cache)) {
        const std::string name = entry.path().filename();
        if (name != "0002.experts" && name != "0004.experts") continue;
        fs::permissions(entry.path(), fs::perms::owner_all);
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        constexpr std::streamoff kFirstExpert = 4096;
        file.seekg(kFirstExpert);
        const char byte = static_cast<char>(file.get() ^ 1);
        file.seekp(kFirstExpert);
        file.put(byte);
    }
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{}, std::vector<std::string>{"--topology", "colocated"}}) {
        const CachedRun run = run_with_cache(cache, flags);
        expect_same_bits(off.replies, run.replies, "damaged experts");
        if (!flags.empty()) {
            EXPECT_THAT(run.log, HasSubstr("6 were there, 0 packed now"));
            EXPECT_THAT(run.log, Not(HasSubstr("this worker ends")));
            continue;
        }
        EXPECT_THAT(run.log, HasSubstr("has another checksum than when it was written"));
        EXPECT_THAT(run.log, HasSubstr("this worker ends"));
        EXPECT_THAT(run.log, HasSubstr("4 were there, 2 packed now, 0 in private memory"));
    }
}

TEST(WeightCache, AKilledWorkerComesBackWithoutPacking) {
    Instance instance({"--weight-cache", make_directory() + "/cache", "--ffn-workers", "2"});
    instance.wait_ready();
    kill(instance.worker_pids("ffn").at(0), SIGKILL);
    instance.wait_for("the worker is back", [](const client::Status& status) {
        for (const client::Worker& worker : status.workers()) {
            if (worker.role() == "ffn" && worker.index() == 0) {
                return worker.num_restarts() == 1 && worker.state() == "ready";
            }
        }
        return false;
    });
    EXPECT_EQ(instance.stop(), 0);
    EXPECT_THAT(instance.log(), HasSubstr("6 were there, 0 packed now"));
}

TEST(WeightCache, ADirectoryThatIsNamedMustBeUsable) {
    const std::string file = make_directory() + "/file";
    std::ofstream(file) << "x";
    Instance instance({"--weight-cache", file + "/cache"});
    EXPECT_EQ(instance.wait_exit(), 2);
    EXPECT_THAT(instance.log(), HasSubstr("set weight_cache to a directory of yours, or to off"));
    Instance relative({"--weight-cache", "cache"});
    EXPECT_EQ(relative.wait_exit(), 2);
    EXPECT_THAT(relative.log(),
                HasSubstr("must be auto, off, or a path in UTF-8 that begins with /"));
}

}  // namespace
}  // namespace afd::test
