// SPDX-License-Identifier: Apache-2.0
//
// Peers that may say hello and say what they like: what that costs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "schedule/near/near_link.h"
#include "schedule/ucx/ucx_address.h"
#include "schedule/ucx/ucx_message.h"
#include "schedule/ucx/ucx_worker.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/schedule/ucx/await.h"
#include "tests/schedule/ucx/ucx_network.h"

namespace afd::schedule::stress {
namespace {

// A peer with the right to say hello, whose messages are any bytes.
class Liar : public UcxReceiver {
  public:
    Liar(UcxNetwork& network, uint32_t session, uint64_t epoch)
        : worker_(UcxWorker::make(network.config(), false).value()) {
        network.book().set(Role::kAttention, session, {epoch, {}});
        worker_->start(*this);
        const UcxWorker::Lock held = worker_->lock();
        path_ = worker_->connect(network.book().get(Role::kFfn, 0).address).value();
        header_.magic = kUcxMagic;
        header_.instance_id = test_identity().instance_id;
        header_.epoch = epoch;
        header_.session = session;
    }
    ~Liar() override { worker_->stop(); }
    Liar(const Liar&) = delete;
    Liar& operator=(const Liar&) = delete;

    bool is_welcome() const {
        const UcxWorker::Lock held = worker_->lock();
        return is_welcome_;
    }
    void send(UcxHeader header, size_t payload_bytes, uint64_t seed) {
        const UcxWorker::Lock held = worker_->lock();
        auto message = std::make_unique<UcxMessage>();
        message->header = header;
        message->payload = std::make_unique<std::byte[]>(payload_bytes);
        message->payload_bytes = payload_bytes;
        std::mt19937_64 random(seed);
        for (size_t i = 0; i < payload_bytes; ++i) {
            // Small numbers often: those of slots and lengths that could be right.
            message->payload[i] = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
        }
        worker_->send(*path_, *message);
        sent_.push_back(std::move(message));
    }
    const UcxHeader& header() const { return header_; }

  private:
    void on_message(const std::shared_ptr<UcxPath>&,
                    const UcxHeader& header,
                    std::span<const std::byte>) override {
        is_welcome_ = is_welcome_ || header.kind == UcxKind::kWelcome;
    }
    void on_tick(uint64_t) override {}

    UcxHeader header_{};
    bool is_welcome_ = false;
    std::vector<std::unique_ptr<UcxMessage>> sent_;
    std::unique_ptr<UcxWorker> worker_;
    std::shared_ptr<UcxPath> path_;
};

// A rank by hand: says what the test wants where a session has said hello.
class HandmadeRank : public UcxReceiver {
  public:
    explicit HandmadeRank(UcxNetwork& network)
        : worker_(UcxWorker::make(network.config(), true).value()) {
        worker_->start(*this);
        network.book().set(Role::kFfn, 0, {1, worker_->address()});
    }
    ~HandmadeRank() override { worker_->stop(); }
    HandmadeRank(const HandmadeRank&) = delete;
    HandmadeRank& operator=(const HandmadeRank&) = delete;

    bool is_greeted() const {
        const UcxWorker::Lock held = worker_->lock();
        return path_ != nullptr;
    }
    // Nothing is read while it is held.
    UcxWorker::Lock lock() const { return worker_->lock(); }
    // The first of lane 0, over the connection of the last hello.
    void send(UcxKind kind, uint64_t instance_id, size_t payload_bytes) {
        const UcxWorker::Lock held = lock();
        send_locked(kind, instance_id, payload_bytes, 1);
    }
    void send_locked(UcxKind kind, uint64_t instance_id, size_t payload_bytes, int32_t round) {
        auto message = std::make_unique<UcxMessage>();
        message->header = hello_;
        message->header.kind = kind;
        message->header.instance_id = instance_id;
        message->header.round = round;
        message->header.number = static_cast<uint64_t>(round);
        message->payload = std::make_unique<std::byte[]>(payload_bytes);
        message->payload_bytes = payload_bytes;
        worker_->send(*path_, *message);
        sent_.push_back(std::move(message));
    }

  private:
    void on_message(const std::shared_ptr<UcxPath>& path,
                    const UcxHeader& header,
                    std::span<const std::byte>) override {
        if (header.kind != UcxKind::kHello) return;
        worker_->adopt(*path);
        path_ = path;
        hello_ = header;
    }
    void on_tick(uint64_t) override {}

    UcxHeader hello_{};
    std::vector<std::unique_ptr<UcxMessage>> sent_;
    std::unique_ptr<UcxWorker> worker_;
    std::shared_ptr<UcxPath> path_;
};

// Each kind of message, with a payload that it could have.
struct KindAndBytes {
    UcxKind kind;
    size_t payload_bytes;
};
const std::vector<KindAndBytes>& all_kinds() {
    static const std::vector<KindAndBytes> kinds = {
        {UcxKind::kHello, 0},
        {UcxKind::kWelcome, 2 * small_geometry().num_micro_batches * sizeof(int32_t)},
        {UcxKind::kDescriptor, 0},
        {UcxKind::kResults, 0},
        {UcxKind::kHeartbeat, sizeof(UcxBeat)},
        {UcxKind::kRing, 0},
        {UcxKind::kWords, 7 * sizeof(int32_t)},
        {UcxKind::kBlock, 512},
        {UcxKind::kProbe, 512},
        {UcxKind::kAnswer, 0}};
    return kinds;
}

// Counts what a neighbour is sent.
struct WelcomeCounter final : NearReceiver {
    void on_message(std::span<const std::byte> bytes, std::span<const std::byte>) override {
        UcxHeader header{};
        std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
        if (header.kind == UcxKind::kWelcome) ++num_welcomes;
    }
    size_t num_welcomes = 0;
};

// Goal: a session's process that says hello again and again, and reads no answer, costs its rank no
// memory. Method: a neighbour whose ring is full after a quarter of its hellos, each of which the
// rank has turned to. Oracle: how many welcomes it finds when it reads at last; then one is
// answered as before.
TEST(HostileUcx, WhoRepeatsItsHelloAndReadsNothingIsWelcomedOnce) {
    Geometry geometry = small_geometry();
    geometry.num_micro_batches = kMicroBatchesMax;  // Long welcomes fill a ring sooner.
    const size_t welcome_bytes = 2 * kMicroBatchesMax * sizeof(int32_t);
    const size_t num_fitting = NearLink::kRingBytes / welcome_bytes;
    UcxNetwork network(geometry, {.transports = "tcp", .devices = "lo", .near_by_memory = true});
    const auto returns = network.returns(0);
    const UcxWorker& worker = returns->end().worker();
    network.book().set(Role::kAttention, 0, {1, {}});
    const auto address = UcxAddress::parse(network.book().get(Role::kFfn, 0).address);
    ASSERT_TRUE(address.ok() && address.value().near);
    uint32_t num_in_flight = 0;
    auto link = NearLink::connect(*address.value().near);
    ASSERT_TRUE(link.ok()) << link.error().message;
    const uint64_t deadline_us = steady_now_us() + 60'000'000;
    UcxHeader hello{};
    hello.magic = kUcxMagic;
    hello.instance_id = test_identity().instance_id;
    hello.epoch = 1;
    hello.connection = 1;
    hello.kind = UcxKind::kHello;
    const auto say_hello = [&] {
        const uint64_t num_before = worker.num_turns();
        link.value()->send({.header = std::as_bytes(std::span(&hello, 1)),
                            .payload = {},
                            .num_in_flight = &num_in_flight});
        while (worker.num_turns() < num_before + 2 && steady_now_us() < deadline_us) {
            std::this_thread::yield();
        }
    };
    WelcomeCounter counter;
    // What comes at all comes within this time of the one before.
    const auto read_welcomes = [&] {
        uint64_t last_us = steady_now_us();
        while (steady_now_us() < last_us + 500'000) {
            const size_t num_before = counter.num_welcomes;
            if (!link.value()->take(counter)) std::this_thread::yield();
            if (counter.num_welcomes > num_before) last_us = steady_now_us();
        }
    };
    for (size_t i = 0; i < 4 * num_fitting; ++i) say_hello();
    read_welcomes();
    EXPECT_GE(counter.num_welcomes, 1U);
    EXPECT_LE(counter.num_welcomes, num_fitting + 1) << "more than its ring has room for";
    const size_t num_before = counter.num_welcomes;
    say_hello();
    read_welcomes();
    EXPECT_GT(counter.num_welcomes, num_before);
    EXPECT_FALSE(link.value()->has_failed());
}

// Rows so long that a publication has no room in the ring of a neighbour who reads nothing.
Geometry geometry_of_long_rows() {
    Geometry geometry = small_geometry();
    geometry.attn_to_ffn_token_bytes = 64 << 10;
    geometry.ffn_to_attn_token_bytes = 64 << 10;
    return geometry;
}
UcxConfig config_of_neighbours() {
    return {.transports = "tcp", .devices = "lo", .stuck_us = 600'000'000, .near_by_memory = true};
}

// Calls put(token, k, row) for each slot of a publication that is longer than such a ring.
template <typename Put>
void put_all(const Put& put) {
    const Geometry geometry = geometry_of_long_rows();
    const std::vector<std::byte> row(geometry.ffn_to_attn_token_bytes, std::byte{7});
    for (uint32_t token = 0; token < geometry.micro_batch_size; ++token) {
        for (uint32_t k = 0; k < geometry.selected_expert_num; ++k) put(token, k, row);
    }
}

// A session's process that has its rank send to a ring which it never reads.
class DeafSession {
  public:
    explicit DeafSession(UcxNetwork& network) : returns_(network.returns(0)) {
        network.book().set(Role::kAttention, 0, {1, {}});
        const auto address = UcxAddress::parse(network.book().get(Role::kFfn, 0).address);
        link_ = NearLink::connect(*address.value().near).value();
        header_.magic = kUcxMagic;
        header_.instance_id = test_identity().instance_id;
        header_.epoch = 1;
        header_.connection = 1;
        header_.kind = UcxKind::kHello;
        await([this] {
            say();
            const UcxWorker::Lock held = returns_->end().lock();
            return returns_->end().is_open(0);
        });
        header_.kind = UcxKind::kDescriptor;
    }
    void publish(int32_t round) {
        header_.round = round;
        header_.number = static_cast<uint64_t>(round);
        say();
    }
    // What the rank makes of it, in an execution that has a result for each slot.
    void execute(int32_t round) {
        await([&] {
            return is_refused() || returns_->descriptor_flags().at(0, Order::kAcquire) == round;
        });
        if (is_refused()) return;
        put_all([&](uint32_t token, uint32_t k, std::span<const std::byte> row) {
            returns_->put_result(0, 0, token, k, row, round);
        });
        returns_->acknowledge(0, 0, round);
    }
    bool is_refused() const { return returns_->end().num_bad() > 0; }

  private:
    void say() {
        const UcxWorker& worker = returns_->end().worker();
        const uint64_t num_before = worker.num_turns();
        link_->send({.header = std::as_bytes(std::span(&header_, 1)),
                     .payload = {},
                     .num_in_flight = &num_in_flight_});
        await([&] { return worker.num_turns() >= num_before + 2; });
    }

    std::unique_ptr<UcxReturn> returns_;
    UcxHeader header_{};
    uint32_t num_in_flight_ = 0;
    std::unique_ptr<NearLink> link_;
};

// Goal: a session's process that reads no results costs its rank no more memory than a lane may
// have on its way, whether it has the same ones sent again or goes on to rounds whose results it
// has not read. Oracle: the rank ends its connection before it has said that many things.
constexpr size_t kToldMax = UcxOutbox::kUnsentMax + 2;

TEST(HostileUcx, WhoHasResultsSentAgainAndReadsNoneLosesItsConnection) {
    UcxNetwork network(geometry_of_long_rows(), config_of_neighbours());
    DeafSession session(network);
    session.publish(1);
    session.execute(1);
    size_t num_told = 1;
    for (; !session.is_refused() && num_told < 10 * kToldMax; ++num_told) session.publish(1);
    EXPECT_TRUE(session.is_refused());
    EXPECT_LE(num_told, kToldMax);
}

TEST(HostileUcx, WhoGoesOnAndReadsNoResultsLosesItsConnection) {
    UcxNetwork network(geometry_of_long_rows(), config_of_neighbours());
    DeafSession session(network);
    int32_t round = 0;
    while (!session.is_refused() && round < static_cast<int32_t>(10 * kToldMax)) {
        session.publish(++round);
        session.execute(round);
    }
    EXPECT_TRUE(session.is_refused());
    EXPECT_LE(round, static_cast<int32_t>(kToldMax));
}

// Goal: the same of a rank that acknowledges rounds which it has not read.
TEST(HostileUcx, ARankThatAnswersWhatItHasNotReadLosesItsConnection) {
    UcxNetwork network(geometry_of_long_rows(), config_of_neighbours());
    HandmadeRank rank(network);
    const auto dispatch = network.dispatch(0);
    const uint64_t own = test_identity().instance_id;
    await([&] { return rank.is_greeted(); });
    rank.send(UcxKind::kWelcome, own, 2 * small_geometry().num_micro_batches * sizeof(int32_t));
    await([&] { return dispatch->descriptor_flag(0, 0) == 0; });
    const UcxWorker::Lock reads_nothing = rank.lock();
    const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), 0);
    const auto is_refused = [&] { return dispatch->end().num_bad() > 0; };
    int32_t round = 0;
    while (!is_refused() && round < static_cast<int32_t>(10 * kToldMax)) {
        ++round;
        put_all([&](uint32_t token, uint32_t k, std::span<const std::byte> row) {
            dispatch->put_row(0, 0, token, k, row);
        });
        dispatch->publish(0, 0, 0, ids, round);
        rank.send_locked(UcxKind::kResults, own, 0, round);
        await(
            [&] { return is_refused() || dispatch->acknowledged(0, 0, Order::kAcquire) == round; });
    }
    EXPECT_TRUE(is_refused());
    EXPECT_LE(round, static_cast<int32_t>(kToldMax));
}

// Goal: whatever a session's process says over its connection costs nobody but that session.
// Method: a peer that opens a connection as session 0 and sends headers and payloads at random,
// most of them almost right; again and again, since the rank ends its connections. Oracle: not a
// byte of session 1's stripe changes, and session 1 goes on to work.
TEST(HostileUcx, AnyBytesOfAPeerCostNobodyElse) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const auto honest = network.dispatch(1);
    await([&] { return honest->descriptor_flag(0, 0) == 0; });
    const WindowLayout& layout = network.layout();
    const size_t rows_at = layout.token_row_offset(1, 0, 0, 0);
    const std::vector<std::byte> stripe_before(returns->own_window() + rows_at,
                                               returns->own_window() + rows_at + 4096);
    std::mt19937_64 random(17);
    const size_t ids_bytes = small_geometry().slots_per_micro_batch() * sizeof(int32_t);
    const size_t record_bytes = sizeof(UcxRecord) + small_geometry().attn_to_ffn_token_bytes;
    for (uint64_t life = 1; life <= 5; ++life) {
        Liar liar(network, 0, life);
        UcxHeader hello = liar.header();
        hello.kind = UcxKind::kHello;
        liar.send(hello, 0, 0);
        await([&] { return liar.is_welcome(); });
        for (int i = 0; i < 50; ++i) {
            UcxHeader header = liar.header();
            header.kind = static_cast<UcxKind>(random() % 11);
            header.session = static_cast<uint32_t>(random() % 8 == 0 ? random() : 0);
            header.micro_batch = static_cast<uint32_t>(random() % 4);
            header.round = static_cast<int32_t>(random() % 5) - 1;
            header.num_rows = static_cast<uint32_t>(random() % 8 == 0 ? random() : random() % 3);
            header.word = static_cast<uint32_t>(random() % 5);
            header.number = random() % 4 == 0 ? random() : random() % 3;
            header.offset = random() % 4 == 0 ? random() : random() % 512;
            const size_t rows = header.num_rows % 4;
            liar.send(header,
                      random() % 4 == 0 ? random() % 3000 : ids_bytes + rows * record_bytes,
                      random());
        }
        await([&] { return returns->end().num_bad() >= life; });
    }
    EXPECT_EQ(
        std::memcmp(returns->own_window() + rows_at, stripe_before.data(), stripe_before.size()),
        0);
    const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
    honest->publish(0, 0, 3, ids, 5);
    await([&] { return returns->descriptor_flags().at(2, Order::kAcquire) == 5; });
    EXPECT_EQ(returns->layer_id(1, 0), 3);
}

// Goal: R14. A descriptor that comes once more behind later ones, whose arrival says that it is
// over, is neither stored nor held against the session. Method: a session by hand; the older one
// comes before and after the acknowledgement of the next one, and of the one after that. Oracle:
// the next descriptor is taken, which it would not be behind one that is not acknowledged; nothing
// was wrong.
TEST(HostileUcx, ADescriptorThatItsSuccessorHasOvertakenIsDropped) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    Liar session(network, 0, 1);
    UcxHeader header = session.header();
    header.kind = UcxKind::kHello;
    session.send(header, 0, 0);
    await([&] { return session.is_welcome(); });
    header.kind = UcxKind::kDescriptor;
    const auto publish = [&](int32_t round) {
        header.round = round;
        header.number = static_cast<uint64_t>(round);
        session.send(header, 0, 0);
    };
    const auto stands = [&](int32_t round) {
        return returns->descriptor_flags().at(0, Order::kAcquire) == round;
    };
    publish(1);
    await([&] { return stands(1); });
    returns->acknowledge(0, 0, 1);
    publish(2);
    publish(1);
    await([&] { return stands(2); });
    returns->acknowledge(0, 0, 2);
    publish(1);
    publish(3);
    await([&] { return stands(3) || returns->end().num_bad() > 0; });
    EXPECT_TRUE(stands(3));
    returns->acknowledge(0, 0, 3);
    publish(1);
    publish(4);
    await([&] { return stands(4) || returns->end().num_bad() > 0; });
    EXPECT_TRUE(stands(4));
    EXPECT_EQ(returns->end().num_bad(), 0u);
}

// Goal: R14 is about what one process said: its successor, which counts from where other ranks are,
// may come to a number that stood there before its own. Method: two processes of a session by hand;
// the second one publishes a round before the one that stood when it came, and then that. Oracle:
// both are taken; nothing was wrong.
TEST(HostileUcx, ADescriptorOfAnotherProcessHasNotBeenOvertaken) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    // Says hello and publishes 1 and 2.
    const auto live = [&](uint64_t epoch) {
        Liar session(network, 0, epoch);
        UcxHeader header = session.header();
        header.kind = UcxKind::kHello;
        session.send(header, 0, 0);
        await([&] { return session.is_welcome(); });
        header.kind = UcxKind::kDescriptor;
        for (const int32_t round : {1, 2}) {
            header.round = round;
            header.number = static_cast<uint64_t>(round);
            session.send(header, 0, 0);
            await([&] {
                return returns->descriptor_flags().at(0, Order::kAcquire) == round ||
                       returns->end().num_bad() > 0;
            });
            ASSERT_EQ(returns->descriptor_flags().at(0, Order::kAcquire), round) << epoch;
            returns->acknowledge(0, 0, round);
        }
    };
    live(1);
    live(2);
    EXPECT_EQ(returns->end().num_bad(), 0u);
}

// Goal: two instances of which one has an address of the other's do nothing to each other: what is
// said under another instance's number is dropped and counted, whatever it is, and ends nothing.
// Method: a session by hand that says everything under another number, before it has said hello
// under the right one and over the open connection. Oracle: not a byte of the window and no
// heartbeat changes; the connection goes on, and takes the first descriptor.
TEST(HostileUcx, ARankDropsWhatIsSaidInAnotherInstance) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto window = [&] {
        const std::byte* begin = returns->own_window();
        return std::vector<std::byte>(begin, begin + network.layout().ffn_window.total_bytes);
    };
    Liar session(network, 0, 1);
    uint64_t num_bad = 0;
    const auto say_all_as_another = [&] {
        for (const auto& [kind, payload_bytes] : all_kinds()) {
            UcxHeader header = session.header();
            header.instance_id ^= 1;
            header.kind = kind;
            header.round = 5;
            header.number = 5;
            // A hello that were heard would be newer than the one that follows.
            if (kind == UcxKind::kHello) header.connection = 7;
            session.send(header, payload_bytes, 3);
            ++num_bad;
        }
        await([&] { return returns->end().num_bad() == num_bad; });
    };
    const std::vector<std::byte> before = window();
    say_all_as_another();
    EXPECT_FALSE(session.is_welcome());
    UcxHeader header = session.header();
    header.kind = UcxKind::kHello;
    session.send(header, 0, 0);
    await([&] { return session.is_welcome(); });
    const HeartbeatWords& words = *returns->end().memory().peer_heartbeats[0];
    const HeartbeatView heard = read_heartbeat(words);
    say_all_as_another();
    EXPECT_EQ(window(), before);
    EXPECT_EQ(read_heartbeat(words).progress, heard.progress);
    EXPECT_EQ(read_heartbeat(words).pid, heard.pid);
    header.kind = UcxKind::kDescriptor;
    header.round = 1;
    header.number = 1;
    session.send(header, 0, 0);
    await([&] { return returns->descriptor_flags().at(0, Order::kAcquire) == 1; });
    EXPECT_EQ(returns->end().num_bad(), num_bad);
}

// Goal: the same at a session's end. Oracle: no connection is open before the right welcome, what
// the session knows of the rank stays, and the right results are taken over the same connection.
TEST(HostileUcx, ASessionDropsWhatIsSaidInAnotherInstance) {
    UcxNetwork network(small_geometry());
    HandmadeRank rank(network);
    const auto dispatch = network.dispatch(0);
    const uint64_t own = test_identity().instance_id;
    uint64_t num_bad = 0;
    const auto say_all_as_another = [&] {
        for (const auto& [kind, payload_bytes] : all_kinds()) {
            rank.send(kind, own ^ 1, payload_bytes);
            ++num_bad;
        }
        await([&] { return dispatch->end().num_bad() == num_bad; });
    };
    await([&] { return rank.is_greeted(); });
    say_all_as_another();
    EXPECT_FALSE(dispatch->links()[0].is_open);
    EXPECT_NE(dispatch->descriptor_flag(0, 0), 0) << "nobody has said what stands there";
    rank.send(UcxKind::kWelcome, own, 2 * small_geometry().num_micro_batches * sizeof(int32_t));
    await([&] { return dispatch->descriptor_flag(0, 0) == 0; });
    const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
    dispatch->publish(0, 0, 0, ids, 1);
    say_all_as_another();
    EXPECT_EQ(dispatch->acknowledged(0, 0, Order::kAcquire), 0);
    EXPECT_TRUE(dispatch->links()[0].is_open);
    rank.send(UcxKind::kResults, own, 0);
    await([&] { return dispatch->acknowledged(0, 0, Order::kAcquire) == 1; });
    EXPECT_EQ(dispatch->end().num_bad(), num_bad);
}

}  // namespace
}  // namespace afd::schedule::stress
