// SPDX-License-Identifier: Apache-2.0
//
// What the workers of a host take of memory. The oracle of the weights is serving_memory(), what
// afd-quantize --dry-run prints, whose own is what is loaded
// (tests/tools/afd-quantize/quantise_test.cc).

#include "daemon/instance/instance_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "daemon/config/instance_geometry.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/instance/expert_plan.h"
#include "daemon/instance/window_memory.h"
#include "model/decoder/serving_memory.h"
#include "schedule/shared_memory/instance_segments.h"
#include "schedule/shared_memory/memory_room.h"
#include "schedule/shared_memory/worker_segments.h"
#include "tests/daemon/scoped_variable.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InstanceMemoryTest : public ::testing::Test {
  protected:
    InstanceMemoryTest() {
        model::CheckpointBuilder(model::small_config()).write(directory_.path());
        files_ = model::ModelFiles::open(directory_.path()).value();
        config_.attention_workers = 3;
        config_.ffn_workers = 2;
        config_.micro_batches = 2;
        config_.micro_batch_size = 8;
        config_.kv_tokens = 640;
        config_.max_sequences = 4;
        config_.expert_placement = "round_robin";
        config_.replica_choice = "session";
        config_.weight_cache = directory_.path("cache");
    }

    const model::ModelConfig& model() const { return files_->config(); }
    model::ServingMemory serving() const {
        return model::serving_memory(*files_, model().quantisation);
    }

    // `host`: empty: this one.
    InstanceMemory memory(const std::string& host = "", bool has_weight_cache = true) {
        const CpuPlan cpus;
        const auto geometry =
            make_geometry(model(), instance_geometry(config_, cpus, schedule::RowDtype::kBf16));
        EXPECT_TRUE(geometry.ok()) << geometry.error().message;
        layout_ = schedule::WindowLayout::compute(geometry.value()).value();
        std::optional<schedule::ExpertPlacement> placement;
        if (config_.num_ffn_workers() > 0) placement = plan_experts(config_, model()).value();
        const MemorySources sources{.model = model(),
                                    .files = has_weights_ ? &*files_ : nullptr,
                                    .numeric_class = ops::best_numeric_class(),
                                    .placement = placement ? &*placement : nullptr,
                                    .layout = layout_,
                                    .cache_room = cache_room_};
        return host.empty() ? memory_here(config_, sources)
                            : memory_on(host, has_weight_cache, config_, sources);
    }

    // The MLPs of dense layers and the shared experts, which every FFN worker has.
    uint64_t replicated_bytes() const {
        uint64_t bytes = 0;
        for (uint32_t layer = 0; layer < model().num_layers; ++layer) {
            const uint32_t expert = model().is_moe_layer(layer) ? model().num_experts : 0;
            bytes += model::packed_expert_bytes(model(), layer, expert, ops::best_numeric_class());
        }
        return bytes;
    }

    const test::TemporaryDirectory directory_;
    std::optional<model::ModelFiles> files_;
    bool has_weights_ = true;
    CacheRoom cache_room_;  // Enough, wherever the test's directory is.
    Config config_;
    schedule::WindowLayout layout_;
};

TEST_F(InstanceMemoryTest, CountsWhatEachWorkerHasAndWhatTheyShare) {
    const InstanceMemory all = memory();
    EXPECT_EQ(all.num_attention_workers, 3u);
    EXPECT_EQ(all.attention_bytes, 3 * (serving().attention - serving().routers));
    EXPECT_GT(all.attention_bytes, 0u);
    EXPECT_EQ(all.kv_bytes, 3 * 640 * serving().kv_bytes_per_token);
    EXPECT_EQ(all.segment_bytes,
              schedule::InstanceSegments::total_bytes(layout_, schedule::Windows::kShared));
    EXPECT_EQ(all.window_bytes, 0u);
    EXPECT_EQ(all.mapped_expert_bytes, serving().experts) << "however many workers map them";
    EXPECT_EQ(all.private_expert_bytes, 0u);
    EXPECT_EQ(all.private_bytes(),
              all.attention_bytes + all.kv_bytes + all.pass_bytes + all.segment_bytes);
    has_weights_ = false;
    EXPECT_EQ(memory().attention_bytes, 0u) << "not known before the weights are there";
    EXPECT_EQ(memory().mapped_expert_bytes, serving().experts);
}

// Goal: the rows that workers clear room for at their start are counted. Oracle: the arrays of
// FfnLoop and MicroBatch, by hand: rows, results and four indices of each slot of three sessions;
// residual, rows, results and routing of each row of an attention worker.
TEST_F(InstanceMemoryTest, CountsTheRowsOfTheLargestPasses) {
    config_.dispatch = Dispatch::kWindow;
    const uint64_t hidden = model().hidden;
    const uint64_t num_slots = model().top_k + model().num_shared_slots();
    const uint64_t of_attention = 3 * 2 * 8 * (3 * 2 * hidden + 8 * model().top_k);
    const uint64_t ffn_rows = 2 * 3 * 8 * num_slots;
    EXPECT_EQ(memory().pass_bytes, of_attention + ffn_rows * (4 * hidden + 16));
    config_.dispatch_dtype = schedule::RowDtype::kFp8;
    EXPECT_GT(memory().pass_bytes, of_attention + ffn_rows * (5 * hidden + 16));
    config_.dispatch_dtype.reset();
    config_.dispatch = Dispatch::kAuto;
    config_.prefill_tokens_max = 100;
    EXPECT_EQ(memory().pass_bytes,
              of_attention + 3 * 100 * (3 * 2 * hidden + 8 * model().top_k) +
                  ffn_rows * (4 * hidden + 16));
    config_.topology = Topology::kColocated;
    EXPECT_EQ(memory().pass_bytes, of_attention);
    config_.topology = Topology::kDisaggregated;
    config_.dispatch = Dispatch::kWindow;
    config_.micro_batch_size = 8192;
    EXPECT_THAT(memory().private_text(), HasSubstr("rows of passes "));
    EXPECT_THAT(memory().remedy(), HasSubstr("lower micro_batches or micro_batch_size"));
}

// Goal: without a weight cache that can be used each worker has experts of its own. Oracle: its
// share, and what every worker has.
TEST_F(InstanceMemoryTest, CountsPrivateExpertsOfEachWorker) {
    const uint64_t two_workers = serving().experts + replicated_bytes();
    config_.weight_cache = "off";
    EXPECT_EQ(memory().private_expert_bytes, two_workers);
    EXPECT_EQ(memory().mapped_expert_bytes, 0u);
    EXPECT_THAT(memory().private_text(), HasSubstr("experts without a weight cache "));
    EXPECT_THAT(memory().remedy(), HasSubstr("weight_cache"));
    config_.weight_cache = directory_.write("file", "no directory");
    EXPECT_EQ(memory().private_expert_bytes, two_workers);
    config_.weight_cache = "auto";
    {
        // What workers cannot be told.
        const ScopedVariable cache("XDG_CACHE_HOME", directory_.path("\xff").c_str());
        EXPECT_EQ(memory().private_expert_bytes, two_workers);
    }
    config_.weight_cache = "off";
    config_.topology = Topology::kColocated;
    EXPECT_EQ(memory().private_expert_bytes, 3 * serving().experts);
    config_.topology = Topology::kDisaggregated;
    config_.ffn_workers = 1;
    config_.shared_experts = SharedExperts::kAttention;
    const uint64_t dense = model::packed_expert_bytes(model(), 0, 0, ops::best_numeric_class());
    EXPECT_EQ(memory().private_expert_bytes, serving().experts + 2 * (replicated_bytes() - dense))
        << "shared experts of three attention workers instead of one FFN worker";
}

// Goal: experts for which the disk of the weight cache has no room are private, of each worker.
// Oracle: the part of them that finds none.
TEST_F(InstanceMemoryTest, CountsExpertsThatTheDiskOfTheCacheHasNoRoomForAsPrivate) {
    const uint64_t two_workers = serving().experts + replicated_bytes();
    cache_room_ = {.all_bytes = serving().experts,
                   .missing_bytes = serving().experts,
                   .free_bytes = serving().experts};
    EXPECT_EQ(memory().mapped_expert_bytes, serving().experts);
    EXPECT_EQ(memory().private_expert_bytes, 0u);
    cache_room_.free_bytes = 0;
    EXPECT_EQ(memory().mapped_expert_bytes, 0u);
    EXPECT_EQ(memory().private_expert_bytes, two_workers);
    cache_room_.free_bytes = serving().experts / 2;
    EXPECT_EQ(memory().mapped_expert_bytes, serving().experts / 2);
    EXPECT_EQ(memory().private_expert_bytes, two_workers / 2);
    EXPECT_THAT(memory().private_text(), HasSubstr("experts without room in the weight cache "));
    EXPECT_THAT(memory().remedy(),
                AllOf(HasSubstr("make room for the weight cache, or name one on a disk "
                                "(weight_cache), "),
                      Not(HasSubstr("let workers share"))));
    config_.weight_cache = "off";
    EXPECT_EQ(memory().cache_room.missing_bytes, 0u) << "nobody looks at a cache that is off";
    EXPECT_EQ(memory().private_expert_bytes, two_workers);
}

// Goal: a host with a part of the experts packs whole layers all the same. Method: the same disk,
// which has room for half of the layers, for one of two FFN workers. Oracle: half of its own.
TEST_F(InstanceMemoryTest, LacksAsMuchOfItsExpertsAsOfTheLayers) {
    config_.ffn_hosts = "local,b";
    const uint64_t own = memory().mapped_expert_bytes;
    const uint64_t of_all = serving().experts;
    ASSERT_LT(own, of_all);
    cache_room_ = {.all_bytes = of_all, .missing_bytes = of_all, .free_bytes = of_all / 2};
    EXPECT_NEAR(
        static_cast<double>(memory().private_expert_bytes), static_cast<double>(own / 2), 1);
    EXPECT_EQ(memory().mapped_expert_bytes + memory().private_expert_bytes, own);
}

// Goal: a weight cache in memory is counted, once, as far as it is not there yet.
TEST_F(InstanceMemoryTest, CountsAWeightCacheThatIsMemory) {
    cache_room_ = {.all_bytes = serving().experts,
                   .missing_bytes = 1000,
                   .free_bytes = 600,
                   .is_memory = true};
    const InstanceMemory all = memory();
    EXPECT_EQ(all.cached_expert_bytes, 600u);
    EXPECT_EQ(all.mapped_expert_bytes, 0u) << "the kernel cannot drop and read it again";
    EXPECT_GE(all.private_expert_bytes, 400u);
    EXPECT_LT(all.private_expert_bytes, 800u);
    cache_room_.missing_bytes = uint64_t{3} << 20;
    cache_room_.free_bytes = uint64_t{4} << 20;
    EXPECT_EQ(memory().private_expert_bytes, 0u);
    EXPECT_THAT(memory().private_text(), HasSubstr("experts in a weight cache of memory 3 MiB"));
    EXPECT_THAT(memory().remedy(),
                AllOf(HasSubstr("or name one on a disk (weight_cache), "),
                      Not(HasSubstr("lower micro_batches"))));
    cache_room_.missing_bytes = 0;
    EXPECT_THAT(memory().remedy(),
                AllOf(HasSubstr("lower micro_batches"), Not(HasSubstr("weight_cache"))));
}

// Goal: what runs on other hosts is theirs. Oracle: the part of each role.
TEST_F(InstanceMemoryTest, CountsTheWorkersOfThisHost) {
    const InstanceMemory all = memory();
    config_.ffn_hosts = "a,b";
    const InstanceMemory no_ffn = memory();
    EXPECT_EQ(no_ffn.attention_bytes, all.attention_bytes);
    EXPECT_EQ(no_ffn.mapped_expert_bytes, 0u);
    EXPECT_EQ(no_ffn.private_expert_bytes, 0u);
    config_.ffn_hosts = "local,b";
    EXPECT_LT(memory().mapped_expert_bytes, all.mapped_expert_bytes);
    EXPECT_GT(memory().mapped_expert_bytes, all.mapped_expert_bytes / 2 - 1);
    config_.attention_hosts = "a";
    const InstanceMemory no_attention = memory();
    EXPECT_EQ(no_attention.attention_bytes, 0u);
    EXPECT_EQ(no_attention.kv_bytes, 0u);
    EXPECT_THAT(no_attention.private_text(), Not(HasSubstr("attention")));
    EXPECT_THAT(no_attention.remedy(), Not(HasSubstr("attention_workers")));
}

// Goal: a host that joins is judged by what its share takes, and by its own weight cache. Oracle:
// the parts of its workers, and with those of this host all that there are.
TEST_F(InstanceMemoryTest, CountsTheWorkersOfAnotherHost) {
    const InstanceMemory all = memory();
    config_.transport = Transport::kUcx;
    config_.attention_hosts = "b,local";
    config_.ffn_hosts = "local,b";
    const InstanceMemory here = memory();
    const InstanceMemory there = memory("b");
    EXPECT_EQ(there.num_attention_workers, 2u);
    EXPECT_EQ(there.attention_bytes, 2 * here.attention_bytes);
    EXPECT_EQ(there.kv_bytes, 2 * here.kv_bytes);
    EXPECT_EQ(here.attention_bytes + there.attention_bytes, all.attention_bytes);
    EXPECT_EQ(here.mapped_expert_bytes + there.mapped_expert_bytes,
              all.mapped_expert_bytes + replicated_bytes());
    EXPECT_EQ(there.window_bytes, window_bytes_on("b", config_, layout_));
    EXPECT_GT(there.window_bytes, 0u);
    const auto segment_bytes = [&](schedule::Role role) {
        return schedule::WorkerSegments::total_bytes(layout_, role, schedule::Windows::kPrivate);
    };
    EXPECT_EQ(there.segment_bytes,
              2 * segment_bytes(schedule::Role::kAttention) + segment_bytes(schedule::Role::kFfn));
    EXPECT_GT(here.segment_bytes, there.segment_bytes) << "the leader has those of all";
    const InstanceMemory without_cache = memory("b", false);
    EXPECT_EQ(without_cache.mapped_expert_bytes, 0u);
    EXPECT_EQ(without_cache.private_expert_bytes, there.mapped_expert_bytes);
    EXPECT_EQ(memory("c").private_bytes(), 0u) << "it runs no worker";
}

TEST_F(InstanceMemoryTest, RefusesAHostWithoutRoom) {
    config_.attention_hosts = "b";
    const InstanceMemory needed = memory("b");
    EXPECT_TRUE(check_room_on("b", needed, needed.private_bytes()).ok());
    const Result<> refused = check_room_on("b", needed, needed.private_bytes() - 1);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("host 'b' has no room for its workers: they need "),
                      HasSubstr("KV caches of 3 attention workers "),
                      HasSubstr(" MiB are available there: "),
                      HasSubstr("lower attention_workers or kv_tokens")));
}

// Goal: who has no room is told which numbers make the sum, and what to lower.
TEST_F(InstanceMemoryTest, RefusesWhatDoesNotFit) {
    InstanceMemory needed = memory();
    EXPECT_TRUE(check_room_for(needed).ok());
    needed.attention_bytes = uint64_t{1} << 50;
    const Result<> refused = check_room_for(needed);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("the workers of this host need 10737"),
                      HasSubstr("(weights of 3 attention workers 1073741824 MiB, KV caches of 3 "
                                "attention workers "),
                      HasSubstr(" MiB are available" + schedule::available_where() +
                                ": lower attention_workers or kv_tokens")));
    const Result<> beside = check_room_for(needed, " beside those that serve", "wait");
    EXPECT_THAT(beside.error().message,
                AllOf(HasSubstr("MiB of memory beside those that serve (weights"),
                      HasSubstr(" MiB are available" + schedule::available_where() + ": wait")));
}

}  // namespace
}  // namespace afd::daemon
