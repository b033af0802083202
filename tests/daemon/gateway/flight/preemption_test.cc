// SPDX-License-Identifier: Apache-2.0
//
// Requests that grow beyond the KV caches of their workers: what afdd counts and what a worker
// decides, together.

#include "daemon/gateway/flight/preemption.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "daemon/attention/sequence_table.h"
#include "daemon/gateway/flight/admission_queue.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kBlocks = 40;  // Of a worker.
constexpr uint32_t kTokensMax = kBlocks * model::kKvBlockTokens;

// Which layers of the model have one.
struct Windows {
    uint32_t of_all = 0;
    WindowedBlocks of_some = {};
};

struct Wanted {
    uint32_t num_prompt = 0;
    uint32_t tokens_max = 0;
    uint32_t num_tokens = 0;  // That afdd has heard of.
    uint32_t num_left = 0;    // How often it has given way.
};

// What a worker says of a sequence, in its order.
struct Said {
    enum class What { kToken, kGaveWay, kOver };
    uint64_t id = 0;
    What what = What::kToken;
};

// A worker as admission sees it: messages both ways take as long as they like.
class Worker {
  public:
    Worker(uint32_t window, const WindowedBlocks& windowed)
        : table_(6, 1, kBlocks, kTokensMax, true, window, windowed) {}

    void tell(std::unique_ptr<SequenceRequest> request) { told_.push_back(std::move(request)); }
    std::optional<Said> hear() {
        if (said_.empty()) return std::nullopt;
        const Said said = said_.front();
        said_.pop_front();
        return said;
    }

    void take_one() {
        if (told_.empty()) return;
        std::unique_ptr<SequenceRequest> request = std::move(told_.front());
        told_.pop_front();
        const uint64_t id = request->sequence_id;
        if (table_.admit(request).ok()) return;
        ASSERT_TRUE(table_.fits_alone(*request)) << id;
        said_.push_back({id, Said::What::kGaveWay});
    }

    void step(std::mt19937& random) {
        table_.look_for_prefixes();
        for (Sequence* sequence : table_.active()) {
            if (random() % 2 == 0) compute(*sequence);
        }
        while (Sequence* youngest = table_.make_room()) {
            for (const Sequence* other : table_.active()) {
                ASSERT_GE(youngest->request->sequence_id, other->request->sequence_id);
            }
            ASSERT_GT(table_.active().size(), 1U) << "one that is alone fits";
            youngest->gives_way = true;
            youngest->is_ending = true;
        }
        for (size_t i = table_.active().size(); i-- > 0;) {
            Sequence& sequence = *table_.active()[i];
            if (!sequence.is_ending) continue;
            const bool gives_way = sequence.gives_way;
            said_.push_back({table_.release(sequence)->sequence_id,
                             gives_way ? Said::What::kGaveWay : Said::What::kOver});
        }
    }

  private:
    void compute(Sequence& sequence) {
        if (sequence.num_ready() == 0) return;
        sequence.num_scheduled += sequence.num_ready();
        for (uint32_t& position : sequence.layer_positions) position = sequence.num_scheduled;
        table_.offer_computed(sequence);
        if (sequence.num_scheduled == sequence.num_tokens()) {
            sequence.request->tokens.push_back(sequence.num_tokens() % 5);
            said_.push_back({sequence.request->sequence_id, Said::What::kToken});
            if (sequence.num_tokens() == sequence.request->max_total_tokens) {
                sequence.is_ending = true;
                return;
            }
        }
        table_.move_on(sequence);
    }

    SequenceTable table_;
    std::deque<std::unique_ptr<SequenceRequest>> told_;
    std::deque<Said> said_;
};

// Goal: whatever grows, nobody lacks a block, everyone comes to its end, and the oldest of all at
// once. Method: requests of any size come to two workers, more than fit by far; messages are heard
// late. Oracle: all end; who gives way is never the oldest that has not ended; nobody does so for
// ever, and few do at all, since a newcomer leaves everybody a step.
class PreemptionAtRandom : public testing::TestWithParam<Windows> {
  protected:
    static constexpr uint64_t kRequests = 60;

    void come() {
        const uint32_t num_prompt = 1 + static_cast<uint32_t>(random_()) % 700;
        const uint32_t num_new = 1 + static_cast<uint32_t>(random_()) % 1200;
        const uint64_t id = ++num_come_;
        const uint32_t tokens_max = std::min(num_prompt + num_new, kTokensMax);
        wanted_[id] = {num_prompt, tokens_max, num_prompt};
        ASSERT_TRUE(queue_.enqueue(id, num_prompt, tokens_max).ok());
    }

    void admit() {
        while (const auto admission = queue_.admit_next()) {
            const Wanted& wanted = wanted_.at(admission->id);
            auto request = std::make_unique<SequenceRequest>();
            request->sequence_id = admission->id;
            request->num_prompt_tokens = wanted.num_prompt;
            request->max_total_tokens = wanted.tokens_max;
            for (uint32_t i = 0; i < wanted.num_tokens; ++i) request->tokens.push_back(i % 5);
            request->reserved_tokens = static_cast<uint32_t>(queue_.reserved_tokens(admission->id));
            workers_[admission->session].tell(std::move(request));
        }
    }

    void hear(uint32_t session) {
        const auto said = workers_[session].hear();
        if (!said) return;
        ASSERT_EQ(queue_.session_of(said->id), session);
        Wanted& wanted = wanted_.at(said->id);
        switch (said->what) {
            case Said::What::kToken:
                ++wanted.num_tokens;
                queue_.on_token(said->id);
                break;
            case Said::What::kGaveWay:
                EXPECT_NE(said->id, wanted_.begin()->first) << "the oldest";
                ASSERT_TRUE(queue_.give_way(said->id));
                ++num_preemptions_;
                EXPECT_LT(++wanted.num_left, 30U) << said->id;
                break;
            case Said::What::kOver:
                ASSERT_EQ(wanted.num_tokens, wanted.tokens_max);
                EXPECT_TRUE(queue_.remove(said->id));
                wanted_.erase(said->id);
                break;
        }
    }

    std::mt19937 random_{3};
    const Windows& windows_ = GetParam();
    AdmissionQueue queue_{2, 1000, 6, {.grows = true, .window = windows_.of_all}};
    std::array<Worker, 2> workers_{Worker(windows_.of_all, windows_.of_some),
                                   Worker(windows_.of_all, windows_.of_some)};
    std::map<uint64_t, Wanted> wanted_;  // Of those that have not ended.
    uint64_t num_come_ = 0;
    uint64_t num_preemptions_ = 0;
};

TEST_P(PreemptionAtRandom, EveryoneComesToItsEnd) {
    for (uint32_t session = 0; session < 2; ++session) queue_.worker_ready(session, kTokensMax);
    for (int turn = 0; turn < 200'000 && !HasFatalFailure(); ++turn) {
        if (num_come_ < kRequests && random_() % 40 == 0) come();
        if (num_come_ == kRequests && wanted_.empty()) break;
        const uint32_t session = random_() % 2;
        if (random_() % 3 == 0) workers_[session].take_one();
        workers_[session].step(random_);
        for (auto count = random_() % 10; count > 0; --count) hear(session);
        admit();
    }
    EXPECT_EQ(num_come_, kRequests);
    EXPECT_TRUE(wanted_.empty()) << wanted_.size() << " have not ended";
    EXPECT_EQ(queue_.num_running() + queue_.num_queued(), 0U);
    EXPECT_GT(num_preemptions_, windows_.of_all == 0 ? 5U : 0U);
    EXPECT_LT(num_preemptions_, 4 * kRequests);
}

constexpr Windows kOfAll = {.of_all = 700};
constexpr Windows kOfSome = {.of_some = {.num_blocks = kBlocks, .window = 100}};
INSTANTIATE_TEST_SUITE_P(Windows, PreemptionAtRandom, testing::Values(Windows{}, kOfAll, kOfSome));

}  // namespace
}  // namespace afd::daemon
