// SPDX-License-Identifier: Apache-2.0
//
// afd-quantize on models larger than its memory: interruptions, bounds, and sizes told before.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_names.h"
#include "model/decoder/expert_weights.h"
#include "model/decoder/serving_memory.h"
#include "model/family/model_files.h"
#include "proto/sanitizers.h"
#include "tests/file_size_limit.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "tests/tools/afd-quantize/small_quantise.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/perplexity.h"
#include "tools/afd-quantize/quantise_checkpoint.h"
#include "tools/afd-quantize/quantise_plan.h"
#include "tools/afd-quantize/result_directory.h"
#include "tools/afd-quantize/result_files.h"
#include "tools/afd-quantize/streamed_decoder.h"
#include "tools/afd-quantize/text_sample.h"

namespace afd::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;

// Runs `body` in a process of its own; returns how that ended.
int in_process(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        body();
        ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
}

// Goal: an interruption costs no byte. Method: kill -9 after every batch there is, each time going
// on with what the last run left; and once more with the next run killed before its first batch is
// noted. Oracle: every file of an uninterrupted run.
TEST(Quantise, GoesOnAfterKillWhereItWasAndGivesTheSameBytes) {
    const test::TemporaryDirectory source;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    for (const model::QuantisationConfig& wanted :
         {kSmoothInt8, model::QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32}}) {
        const test::TemporaryDirectory target;
        const std::string whole = target.path("whole");
        const std::string killed = target.path("killed");
        threads::ThreadPool threads(2);
        ASSERT_TRUE(quantise(source.path(), whole, wanted, threads).ok());
        int num_killed = 0;
        int status = 0;
        do {
            status = in_process([&] {
                ops::SerialParallel serial;
                // The first report of a run that goes on is of what was done before.
                int reports = fs::exists(killed + "/model-00001.safetensors") ? -1 : 0;
                const auto made = quantise(source.path(), killed, wanted, serial, [&](uint64_t) {
                    // One batch is noted, one is written and not noted.
                    if (++reports == 2) ::kill(::getpid(), SIGKILL);
                });
                if (!made.ok()) ::_exit(1);
            });
            if (WIFSIGNALED(status)) {
                ++num_killed;
                EXPECT_FALSE(fs::exists(killed + "/config.json"));
                ASSERT_LT(num_killed, 100) << "it does not get on";
            }
        } while (WIFSIGNALED(status));
        EXPECT_EQ(status, 0);
        EXPECT_THAT(num_killed, Ge(3));
        EXPECT_EQ(contents(killed), contents(whole));
    }
}

TEST(Quantise, BeginsAnewWhereAShardWasRemoved) {
    const test::TemporaryDirectory source;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    const test::TemporaryDirectory target;
    ops::SerialParallel serial;
    ASSERT_TRUE(quantise(source.path(), target.path("whole"), kSmoothInt8, serial).ok());
    const std::string killed = target.path("killed");
    const auto kill_at = [&](int report) {
        const int status = in_process([&] {
            int reports = 0;
            (void)quantise(source.path(), killed, kSmoothInt8, serial, [&](uint64_t) {
                if (++reports == report) ::kill(::getpid(), SIGKILL);
            });
        });
        EXPECT_TRUE(WIFSIGNALED(status));
    };
    kill_at(3);
    fs::remove(killed + "/model-00001.safetensors");
    std::ofstream(killed + "/config.json") << "{}";
    // Killed again, before it has noted anything: what it emptied it has not done.
    kill_at(1);
    EXPECT_FALSE(fs::exists(killed + "/config.json"));
    ASSERT_TRUE(quantise(source.path(), killed, kSmoothInt8, serial).ok());
    EXPECT_EQ(contents(killed), contents(target.path("whole")));
}

// Goal: a result is of the checkpoint that the run began with. Method: another revision comes while
// it works. Oracle: the result without that.
TEST(Quantise, TakesNothingThatCameMeanwhile) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    source.write("tokenizer.json", "{}");
    source.write("LICENSE", "to serve");
    ops::SerialParallel serial;
    ASSERT_TRUE(quantise(source.path(), target.path("whole"), kSmoothInt8, serial).ok());
    const auto made =
        quantise(source.path(), target.path("made"), kSmoothInt8, serial, [&](uint64_t) {
            nlohmann::json config = model::small_config();
            config["rms_norm_eps"] = 1e-3;
            source.write("config.json", config.dump());
            source.write("tokenizer.json", R"({"model": null})");
            fs::remove(source.path("LICENSE"));
        });
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(contents(target.path("made")), contents(target.path("whole")));
}

// Goal: a run that was interrupted behind the tokenizer can write it again. Oracle: the mode of the
// copy, since root may write in spite of it.
TEST(Quantise, CopiesOfReadOnlyFilesAreWritable) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    fs::permissions(source.write("tokenizer.json", "{}"), fs::perms::owner_read);
    ops::SerialParallel serial;
    const std::string out = target.path("out");
    const auto made = quantise(source.path(), out, kSmoothInt8, serial);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(contents(out)["tokenizer.json"], "{}");
    EXPECT_EQ(fs::status(out + "/tokenizer.json").permissions() & fs::perms::owner_write,
              fs::perms::owner_write);
}

// Goal: a result that there is no room for is refused before the work, with what it takes. Method:
// a limit of the process' files, which is an error of its own beside that of a full disk.
TEST(ResultFiles, SayHowMuchIsNeededWhereThereIsNoRoom) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    const auto files = model::ModelFiles::open(source.path()).value();
    const auto plan = QuantisePlan::make(files, kSmoothInt8).value();
    const test::FileSizeLimit limit(1000);
    const auto made = ResultFiles::open(plan, target.path(), false);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kResourceExhausted);
    EXPECT_EQ(made.error().message,
              target.path("model.safetensors") +
                  ": writing: File too large; the weights need 0.2 MiB in all. Free as much, raise "
                  "the limit of your files, or give --out a place on another disk");
}

// Goal: who is refused for want of room has not filled the disk with what there was room for.
// Method: shards, of which the first fits under the limit. Oracle: the sizes of all there are.
TEST(ResultFiles, GiveTheRoomBackWhereThereIsNotEnough) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    const auto files = model::ModelFiles::open(source.path()).value();
    const auto plan = QuantisePlan::make(files, kSmoothInt8, kSmallLimits.shard_bytes).value();
    const test::FileSizeLimit limit(plan.shard_bytes(0));
    ASSERT_FALSE(ResultFiles::open(plan, target.path(), false).ok());
    size_t num_files = 0;
    for (const auto& entry : fs::directory_iterator(target.path())) {
        EXPECT_EQ(entry.file_size(), 0u) << entry.path();
        ++num_files;
    }
    EXPECT_THAT(num_files, Ge(2u));
}

// The address sanitizer keeps freed memory back to find its users: no measure there.
#if !AFD_ASAN

// "VmHWM" or "VmRSS" of this process, in bytes.
uint64_t status_bytes(const std::string& key) {
    std::ifstream stream("/proc/self/status");
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
    }
    return 0;
}

nlohmann::json wide_config() {
    nlohmann::json config = model::small_config();
    config["hidden_size"] = 512;
    config["intermediate_size"] = 512;
    config["moe_intermediate_size"] = 512;
    config["n_routed_experts"] = 24;
    config["num_hidden_layers"] = 4;
    config["vocab_size"] = 8192;
    return config;
}

// Goal: memory does not grow with the model. Method: a model of some 140 MiB in bf16, through
// calibration, quantisation and measurement in a process of its own, with limits a sixteenth of the
// real ones. Oracle: its high-water mark, beyond what the process had at its start.
TEST(Quantise, NeedsMemoryForAPartOfTheModelOnly) {
    constexpr uint64_t kBound = uint64_t{56} << 20;
    const test::TemporaryDirectory source;
    model::CheckpointBuilder(wide_config()).write(source.path());
    const test::TemporaryDirectory target;
    const int status = in_process([&] {
        ::malloc_trim(0);
        std::ofstream("/proc/self/clear_refs") << "5";
        const uint64_t before = status_bytes("VmHWM");
        auto files = model::ModelFiles::open(source.path());
        if (files.ok()) files.value().set_residual(model::kServingResidual);
        if (!files.ok() || files.value().tensors().total_bytes() < 2 * kBound) ::_exit(2);
        ops::SerialParallel serial;
        const StreamedText text{.tokens = some_tokens(600), .window = 200};
        const StreamedLimits limits{
            .expert_bytes = 20 << 20, .head_bytes = 4 << 20, .row_bytes = 2 << 20};
        auto decoder = StreamedDecoder::create(files.value(), text, target.path(), serial, limits);
        ChannelRanges ranges;
        if (!decoder.ok() || !decoder.value().surprises([](double) {}, &ranges).ok()) ::_exit(3);
        auto directory = ResultDirectory::open(target.path("out"), "job");
        if (!directory.ok()) ::_exit(4);
        const auto made = quantise_checkpoint(
            files.value(),
            kSmoothInt8,
            CompanionFiles(),
            directory.value(),
            serial,
            [](uint64_t) {},
            {},
            ranges);
        if (!made.ok()) ::_exit(5);
        const uint64_t taken = status_bytes("VmHWM") - before;
        std::ofstream(target.path("taken")) << taken;
        if (taken > kBound) ::_exit(6);
    });
    uint64_t taken = 0;
    std::ifstream(target.path("taken")) >> taken;
    EXPECT_EQ(status, 0) << WEXITSTATUS(status) << ", " << taken << " bytes";
    RecordProperty("bytes", std::to_string(taken));
}

// Goal: nor with the context, of which windows are a small part. Method: the same weights with a
// context of four million tokens, whose table of positions is 128 MiB a layer, in a process of its
// own. Oracle: its high-water mark, and the perplexity in a context of two windows, bit for bit.
TEST(Perplexity, NeedsMemoryForItsWindowsOnly) {
    constexpr uint64_t kBound = uint64_t{32} << 20;
    const test::TemporaryDirectory source;
    const TextSample text{.path = "text",
                          .hash = "",
                          .start = {5},
                          .tokens = some_tokens(1500),
                          .token_bytes = std::vector<uint32_t>(1500, 3)};
    ops::SerialParallel serial;
    const auto measure = [&](uint32_t context) {
        nlohmann::json config = model::small_config();
        config["max_position_embeddings"] = context;
        model::CheckpointBuilder(config).write(source.path());
        return measure_perplexity(source.path(), text, source.path(), serial, [](double) {});
    };
    const auto expected = measure(2048);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    const int status = in_process([&] {
        ::malloc_trim(0);
        std::ofstream("/proc/self/clear_refs") << "5";
        const uint64_t before = status_bytes("VmHWM");
        const auto measured = measure(1u << 22);
        if (!measured.ok() || measured.value().value != expected.value().value) ::_exit(2);
        if (status_bytes("VmHWM") - before > kBound) ::_exit(3);
    });
    EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

#endif

// Goal: of the text model of a model of text and images the result is the text model alone. Oracle:
// that of the same model, alone.
TEST(Quantise, WritesATextModelAlone) {
    const test::TemporaryDirectory alone;
    const test::TemporaryDirectory wrapped;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder builder(model::small_config());
    builder.write(alone.path());
    builder.wrap(model::kWrappedNames[1]);
    builder.write(wrapped.path());
    ops::SerialParallel serial;
    constexpr model::QuantisationConfig kInt8{.experts = ops::WeightFormat::kInt8};
    ASSERT_TRUE(quantise(alone.path(), target.path("alone"), kInt8, serial).ok());
    ASSERT_TRUE(quantise(wrapped.path(), target.path("wrapped"), kInt8, serial).ok());
    EXPECT_EQ(contents(target.path("wrapped")), contents(target.path("alone")));
}

// Goal: what --dry-run says is what happens. Oracle: the files, and the packed experts.
TEST(QuantisePlan, KnowsTheSizesBefore) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    model::CheckpointBuilder(model::small_config()).write(source.path());
    ops::SerialParallel serial;
    ASSERT_TRUE(quantise(source.path(), target.path("model"), kSmoothInt8, serial).ok());
    const auto files = model::ModelFiles::open(source.path()).value();
    const auto plan = QuantisePlan::make(files, kSmoothInt8, 30'000).value();
    const auto made = model::ModelFiles::open(target.path("model")).value();
    EXPECT_EQ(plan.result_bytes(), made.tensors().total_bytes());
    for (size_t shard = 0; shard < plan.num_shards(); ++shard) {
        EXPECT_EQ(fs::file_size(target.path("model/" + plan.shard_name(shard))),
                  plan.shard_bytes(shard));
    }
    const model::ServingMemory planned = model::serving_memory(files, kSmoothInt8);
    const auto loaded = model::load_experts(made,
                                            model::all_expert_slots(made.config()),
                                            3 * model::experts_per_layer(made.config()),
                                            ops::best_numeric_class(),
                                            serial)
                            .value();
    uint64_t packed = 0;
    for (size_t key = 0; key < loaded.table.num_keys(); ++key) {
        const ops::PackedExpert& expert = loaded.table.at(key);
        if (!expert.empty()) packed += expert.gate_up.size_bytes() + expert.down.size_bytes();
    }
    EXPECT_EQ(planned.experts, packed);
    EXPECT_EQ(planned.kv_bytes_per_token, 3u * (32 + 8) * 2);
    // Attention in int8 takes less than in bf16.
    EXPECT_LT(planned.attention, model::serving_memory(files, {}).attention);
}

// Goal: a matrix without elements, in the form of another program, is refused before the work,
// which is cut by sizes of matrices. Method: one that no part of the model is.
TEST(QuantisePlan, RefusesAMatrixWithoutElements) {
    const test::TemporaryDirectory source;
    model::CheckpointBuilder builder(model::small_config());
    builder.store_as_packed_int4();
    builder.add_integers("foo.weight_packed", {8, 0}, {});
    builder.write(source.path());
    const auto files = model::ModelFiles::open(source.path());
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto plan = QuantisePlan::make(files.value(), {.experts = ops::WeightFormat::kInt8});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, Code::kDataLoss);
    EXPECT_EQ(plan.error().message,
              "tensor foo.weight_packed: is [8, 0], a matrix without elements. Fetch the file "
              "again");
}

// Goal: what is written of as many tensors as the largest models have takes seconds; a look through
// all that came before for each would be minutes. Oracle: the processor's time, and the texts.
TEST(QuantisePlan, TellsOfManyTensorsInSeconds) {
    constexpr size_t kTensors = AFD_SANITIZED ? 15'000 : 150'000;
    std::vector<model::TensorPlace> places;
    for (size_t i = 0; i < kTensors; ++i) {
        places.push_back({.name = "model.layers." + std::to_string(i / 2'400) + ".mlp.experts." +
                                  std::to_string(i % 2'400) + ".down_proj.weight",
                          .dtype = model::StorageType::kU8,
                          .shape = {2, 3}});
    }
    const std::clock_t begin = std::clock();
    const std::string prefix = model::safetensors_prefix(places);
    std::vector<PlannedTensor> tensors;
    for (size_t i = 0; i < kTensors; ++i)
        tensors.push_back({places[i], i < kTensors / 2 ? 0u : 1u});
    const std::string index = index_text(tensors, 2);
    EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);

    const auto header = nlohmann::json::parse(prefix.substr(8));
    ASSERT_EQ(header.size(), kTensors);
    EXPECT_EQ(header[places.back().name]["data_offsets"],
              nlohmann::json({6 * (kTensors - 1), 6 * kTensors}));
    EXPECT_LT(prefix.find(places[1].name + "\""), prefix.find(places[2].name + "\"")) << "in order";
    const auto parsed = nlohmann::json::parse(index);
    EXPECT_EQ(parsed["metadata"]["total_size"], 6 * kTensors);
    ASSERT_EQ(parsed["weight_map"].size(), kTensors);
    EXPECT_EQ(parsed["weight_map"][places.front().name], "model-00001.safetensors");
    EXPECT_EQ(parsed["weight_map"][places.back().name], "model-00002.safetensors");
}

}  // namespace
}  // namespace afd::tools
