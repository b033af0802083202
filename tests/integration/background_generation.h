// SPDX-License-Identifier: Apache-2.0
#pragma once

// BackgroundGeneration: one long request that runs while a test disturbs the system.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/instance.h"

namespace afd::test {

class BackgroundGeneration {
  public:
    // Starts `request` on a connection of its own.
    BackgroundGeneration(const Instance& instance, client::Generate request);
    ~BackgroundGeneration();

    // Waits until at least `count` tokens have arrived; fails the test otherwise.
    void wait_for_tokens(uint32_t count) const;
    // And stops a worker (SIGSTOP) while the request runs. It is begun anew if it was over by then,
    // as it may be where this thread got no core for a while. REQUIRES: no other request runs.
    void stop_amid(uint32_t count, pid_t worker);
    // The same of several, all of which run then.
    static void stop_amid(const std::vector<BackgroundGeneration*>& all,
                          uint32_t count,
                          pid_t worker);
    static void stop_amid(const std::vector<BackgroundGeneration*>& all,
                          uint32_t count,
                          const std::vector<pid_t>& workers);
    // Stops all workers likewise, at whatever they do, so that `disturb()` happens amid the
    // request; then those go on that are left of them. REQUIRES: they may be stopped for so long
    // (--stop-timeout-ms).
    void disturb_amid(uint32_t count, const std::function<void()>& disturb);
    static void disturb_amid(const std::vector<BackgroundGeneration*>& all,
                             uint32_t count,
                             const std::function<void()>& disturb);
    // Waits for the end of all and begins them anew. False: one has failed, and so has the test.
    static bool begin_anew(const std::vector<BackgroundGeneration*>& all);

    uint32_t num_tokens() const;
    // How often the request was sent.
    uint32_t num_begun() const { return num_begun_; }

    // Cancels the request; finish() then tells how it ended.
    void cancel();

    // Waits for its end.
    Result<client::Generation> finish();

  private:
    struct State;

    void begin();

    const Instance& instance_;
    const client::Generate request_;
    std::unique_ptr<State> state_;
    std::thread thread_;
    uint32_t num_begun_ = 0;
};

// How often a test tries to be in time for a request, which may be over before.
inline constexpr int kAttemptsToBeInTime = 20;

// Whether `count` requests run on although a worker was stopped just now: also when what it had
// answered before has come.
bool run_on(const Instance& instance, uint32_t count);

// Token ids, and log probabilities to the last bit.
void expect_same_generation(const client::Generation& expected,
                            const Result<client::Generation>& found);

// The reply to a long request during which a disturbance happens, when it has 20 tokens and is not
// over, is that of before, to the last bit. Each of them has a request of its own: behind what it
// waits for, another might be too late.
void expect_same_bits_through(const Instance& instance,
                              const std::vector<std::function<void()>>& disturbances);

struct WorkerPlace {
    std::string role;
    size_t index = 0;
};

// The replies to `request` are those of before, to the last bit, though a worker is killed
// (SIGKILL) amid them: one for each attention worker, and anew for each of `killed`. REQUIRES:
// workers may be stopped, as above.
void expect_same_bits_through_kills(const Instance& instance,
                                    const client::Generate& request,
                                    const std::vector<WorkerPlace>& killed);

// A greedy request for `num_tokens` tokens that does not end early; with ids and logprobs.
client::Generate long_request(uint32_t num_tokens);

}  // namespace afd::test
