// SPDX-License-Identifier: Apache-2.0
#pragma once

// LoopHarness: an AttentionLoop on a thread of its own over fake lanes and a small random model.
// The test's thread is the control thread, and the experts.

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/attention/attention_loop.h"
#include "tests/daemon/attention/fake_lane.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {

inline constexpr uint32_t kHarnessRows = 4;  // BS
inline constexpr uint32_t kHarnessSequences = 8;
inline constexpr uint32_t kHarnessKvTokens = 1024;
inline constexpr uint64_t kHarnessPrompts = 90;  // Ids that differ by so many have equal prompts.

struct HarnessWaits {
    uint64_t report_us = 10'000'000;
    uint64_t timeout_us = 60'000'000;
};

// The small model without its experts.
class HarnessModel {
  public:
    HarnessModel() : files_(open()) {}

    model::AttentionHalf attention() const {
        return model::AttentionHalf::load(files_, ops::best_numeric_class()).value();
    }
    model::EmbeddingHead head() const {
        return model::EmbeddingHead::load(files_, ops::best_numeric_class()).value();
    }
    model::KvCache cache() const {
        return model::KvCache::create(model::kv_shape(files_.config()), kHarnessKvTokens).value();
    }

  private:
    model::ModelFiles open() {
        model::CheckpointBuilder(model::small_config()).write(directory_.path());
        return model::ModelFiles::open(directory_.path()).value();
    }
    test::TemporaryDirectory directory_;
    const model::ModelFiles files_;
};

class LoopHarness {
  public:
    // What the control thread heard of a request.
    struct Request {
        std::vector<uint32_t> tokens;
        std::vector<float> prompt_logprobs;
        bool is_over = false;
        bool gave_way = false;
        Code code = Code::kOk;
        std::string text;
    };

    explicit LoopHarness(const std::vector<FakeLane::Settings>& lanes,
                         const HarnessWaits& waits = {},
                         uint32_t long_prompt_threshold = 0,
                         size_t event_capacity = 256,
                         size_t tile_products = size_t{1} << 29,
                         bool has_prefix_cache = false)
        : attention_(model_.attention()),
          head_(model_.head()),
          cache_(model_.cache()),
          doorbell_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
          port_(event_capacity, 32, doorbell_fd_.get()) {
        for (const FakeLane::Settings& settings : lanes) {
            auto fake = std::make_unique<FakeLane>(
                settings, schedule::DoorbellRinger(&armed_, doorbell_fd_.get()));
            fakes_.push_back(fake.get());
            lanes_.push_back(std::move(fake));
        }
        loop_.emplace(
            AttentionLoop::Settings{.session = 3,
                                    .micro_batch_size = kHarnessRows,
                                    .sequences_max = kHarnessSequences,
                                    .long_prompt_threshold = long_prompt_threshold,
                                    .wait_report_us = waits.report_us,
                                    .round_timeout_us = waits.timeout_us,
                                    .tile_products = tile_products,
                                    .has_prefix_cache = has_prefix_cache,
                                    .row_checksums = true},
            AttentionLoop::Parts{.attention = &attention_,
                                 .head = &head_,
                                 .cache = &cache_,
                                 .lanes = lanes_,
                                 .parallel = &serial_,
                                 .port = &port_,
                                 .heartbeat = schedule::Heartbeat(&heartbeat_),
                                 .metrics = metrics(),
                                 .lost_ranks = &lost_ranks_,
                                 .now_us = now_us},
            schedule::AdaptiveWait(schedule::Doorbell(&armed_, doorbell_fd_.get()), 20, true));
        thread_ = std::thread([this] { loop_->run(); });
    }
    ~LoopHarness() {
        EXPECT_TRUE(port_.push_command({.kind = WorkerCommand::Kind::kShutdown}));
        thread_.join();
    }

    FakeLane& lane(size_t index) { return *fakes_[index]; }
    const Request& request(uint64_t id) { return requests_[id]; }
    // How often the loop found nothing to do.
    uint64_t num_waits() { return metrics().get(Counter::kSpun) + metrics().get(Counter::kSlept); }
    // Texts of the waits that were reported; an empty one says that a wait is over.
    const std::vector<std::string>& waits() const { return waits_; }

    // The requests that tokens and log probabilities were of, in the order of these.
    const std::vector<uint64_t>& heard() const { return heard_; }

    void admit(uint64_t id,
               uint32_t num_prompt_tokens,
               uint32_t num_new_tokens,
               bool prompt_logprobs = false,
               uint32_t reserved_tokens = 0) {
        auto request = std::make_unique<SequenceRequest>();
        request->sequence_id = id;
        request->prompt_logprobs = prompt_logprobs;
        request->num_prompt_tokens = num_prompt_tokens;
        request->max_total_tokens = num_prompt_tokens + num_new_tokens;
        request->tokens.reserve(request->max_total_tokens);
        for (uint32_t i = 0; i < num_prompt_tokens; ++i) {
            request->tokens.push_back(
                static_cast<uint32_t>(2 + (7 * id + 3 * i) % kHarnessPrompts));
        }
        // Those of one that has given way go on.
        Request& heard = requests_[id];
        request->tokens.insert(request->tokens.end(), heard.tokens.begin(), heard.tokens.end());
        request->reserved_tokens = reserved_tokens;
        heard.is_over = false;
        heard.gave_way = false;
        WorkerCommand command{.kind = WorkerCommand::Kind::kAdmit, .sequence_id = id};
        command.sequence = std::move(request);
        EXPECT_TRUE(port_.push_command(std::move(command)));
    }
    void cancel(uint64_t id) {
        EXPECT_TRUE(port_.push_command({.kind = WorkerCommand::Kind::kCancel, .sequence_id = id}));
    }
    // As if this process, and all others, had been stopped for so long.
    static void stop_for(uint64_t time_us) {
        // Relaxed: no other memory goes by it.
        stopped_us().fetch_add(time_us, std::memory_order_relaxed);
    }
    // The clock of the loop.
    static uint64_t now_us() {
        // Relaxed: see stop_for().
        return schedule::steady_now_us() + stopped_us().load(std::memory_order_relaxed);
    }
    // afdd tells of the first of two ranks that have the same experts.
    void tell_rank(bool is_lost) {
        EXPECT_TRUE(port_.push_command(
            {.kind = WorkerCommand::Kind::kRankState, .rank = 0, .is_lost = is_lost}));
    }

    // Hears events until `done()`, and those that were there by then; false if that takes longer
    // than anything here should.
    template <typename Done>
    bool until(const Done& done) {
        const uint64_t deadline_us = schedule::steady_now_us() + 60'000'000;
        while (!done()) {
            if (schedule::steady_now_us() > deadline_us) return false;
            hear();
            std::this_thread::yield();
        }
        hear();
        return true;
    }
    bool until_over(uint64_t id) {
        return until([&] { return requests_[id].is_over; });
    }
    // Until the loop has done all that it can of what it was told: the second wait began after it.
    bool until_quiet() {
        const uint64_t num_before = num_waits();
        return until([&] { return num_waits() >= num_before + 2; });
    }
    // The same while nobody hears of it: no event is read.
    bool until_quiet_unread() {
        const uint64_t num_before = num_waits();
        const uint64_t deadline_us = schedule::steady_now_us() + 60'000'000;
        while (num_waits() < num_before + 2) {
            if (schedule::steady_now_us() > deadline_us) return false;
            std::this_thread::yield();
        }
        return true;
    }

  private:
    static std::atomic<uint64_t>& stopped_us() {
        static std::atomic<uint64_t> stopped_us{0};
        return stopped_us;
    }
    Metrics metrics() { return Metrics(std::as_writable_bytes(std::span(metrics_))); }

    void hear() {
        for (WorkerEvent event; port_.pop_event(event);) {
            Request& request = requests_[event.sequence_id];
            switch (event.kind) {
                case WorkerEvent::Kind::kToken:
                    request.tokens.push_back(event.token);
                    heard_.push_back(event.sequence_id);
                    break;
                case WorkerEvent::Kind::kPromptLogprob:
                    request.prompt_logprobs.push_back(event.logprob);
                    EXPECT_EQ(event.token, request.prompt_logprobs.size()) << "in their order";
                    heard_.push_back(event.sequence_id);
                    break;
                case WorkerEvent::Kind::kEnd:
                    EXPECT_FALSE(request.is_over) << "one end for each request";
                    EXPECT_EQ(event.sequence->sequence_id, event.sequence_id);
                    request.is_over = true;
                    request.code = event.code;
                    request.gave_way = event.gave_way;
                    request.text = event.text;
                    break;
                case WorkerEvent::Kind::kWait:
                    waits_.emplace_back(event.text);
                    break;
                default:
                    break;
            }
        }
    }

    const HarnessModel model_;
    const model::AttentionHalf attention_;
    const model::EmbeddingHead head_;
    const model::KvCache cache_;
    ops::SerialParallel serial_;
    const schedule::ExpertPlacement placement_ =
        schedule::ExpertPlacement::from_ranks({{{0, 1}}}, 2).value();
    schedule::LostRanks lost_ranks_{placement_, schedule::RouterPlacement::kAttention};
    UniqueFd doorbell_fd_;
    int32_t armed_ = 0;
    schedule::HeartbeatWords heartbeat_{};
    std::vector<uint64_t> metrics_ =
        std::vector<uint64_t>(schedule::kMetricsLanesOffset / sizeof(uint64_t));
    WorkerPort port_;
    std::vector<FakeLane*> fakes_;
    std::vector<std::unique_ptr<ExpertLane>> lanes_;
    std::optional<AttentionLoop> loop_;
    std::thread thread_;
    std::map<uint64_t, Request> requests_;
    std::vector<std::string> waits_;
    std::vector<uint64_t> heard_;
};

inline constexpr uint32_t kNew = 6;  // Tokens that a request samples.

inline FakeLane::Settings any_rows(int32_t num_answered = 0, int32_t peer = 0) {
    return {.traits = {.rows = LaneRows::kAny, .rows_max = kHarnessRows, .has_peers = true},
            .peer = peer,
            .num_answered = num_answered};
}
inline FakeLane::Settings long_prompts(int32_t num_answered = 0) {
    return {.traits = {.rows = LaneRows::kLongPrompts, .rows_max = 40, .has_peers = true},
            .num_answered = num_answered};
}

// What a request of so many prompt tokens samples, when it is alone on one lane that answers at
// once.
inline std::vector<uint32_t> expected_tokens(uint64_t id,
                                             uint32_t num_prompt_tokens,
                                             uint32_t num_new_tokens = kNew) {
    LoopHarness alone({any_rows(FakeLane::kAll)});
    alone.admit(id, num_prompt_tokens, num_new_tokens);
    EXPECT_TRUE(alone.until_over(id));
    EXPECT_EQ(alone.request(id).tokens.size(), num_new_tokens) << alone.request(id).text;
    return alone.request(id).tokens;
}

}  // namespace afd::daemon
