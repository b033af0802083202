// SPDX-License-Identifier: Apache-2.0
//
// The protocol over UCX.
//
// Goal: R1 ... R11 and R13 ... R16 hold over messages of UCX, whatever dies and whichever
// connection breaks. Method: the protocol body as threads, each with a worker of UCX of its own,
// over TCP on loopback, with tcp,sm,self and through memory of the host; deaths are in
// protocol_ucx_processes_test.cc, because UCX 1.13 does not survive many workers that come and go
// in one process. Oracle: that of protocol_body.h: no stale or torn row is accepted, every session
// finishes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/near/near_socket.h"
#include "schedule/ucx/ucx_address.h"
#include "tests/schedule/protocol/protocol_threads.h"
#include "tests/schedule/ucx/await.h"
#include "tests/schedule/ucx/ucx_network.h"

// How often anybody in this program waited for a connection: UCX finds this one and not the
// library's.
std::atomic<int> num_waiting_connects{0};
std::atomic<int> num_connects{0};
extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
    ++num_connects;
    if ((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0) ++num_waiting_connects;
    return static_cast<int>(::syscall(SYS_connect, fd, address, size));
}

namespace afd::schedule::stress {
namespace {

// The transport of UCX by type, since Threads<> makes the instance itself.
class SharedMemoryNetwork : public UcxNetwork {
  public:
    explicit SharedMemoryNetwork(const Geometry& geometry)
        : UcxNetwork(geometry,
                     {.transports = "tcp,sm,self", .devices = "lo", .tells_failures = false}) {}
};

class NearNetwork : public UcxNetwork {
  public:
    explicit NearNetwork(const Geometry& geometry)
        : UcxNetwork(geometry, {.transports = "tcp", .devices = "lo", .near_by_memory = true}) {}
};

Params ucx_params() {
    Params params;
    params.rounds_per_session = 300;
    return params;
}

template <typename Network>
class ProtocolUcx : public testing::Test {};
using Networks = testing::Types<UcxNetwork, SharedMemoryNetwork, NearNetwork>;
TYPED_TEST_SUITE(ProtocolUcx, Networks);

TYPED_TEST(ProtocolUcx, DeliversEveryRowWithEveryPolicy) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        SCOPED_TRACE(std::string(name_of(policy)));
        Params params = ucx_params();
        params.policy = policy;
        Threads<TypeParam>(params).run();
    }
}

TYPED_TEST(ProtocolUcx, DeliversEveryRowOfOfferedTokens) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params = ucx_params();
        params.mode = mode;
        params.router = RouterPlacement::kFfn;
        Threads<TypeParam>(params).run();
    }
}

// Goal: R13. What a process of an older epoch says is dropped, and so is one of an epoch that afdd
// never named. Oracle: the rank's flags, and the heartbeat that the older one would mirror.
TEST(UcxTransport, TakesNobodyButTheProcessThatHasThePlace) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
    const auto old = network.dispatch(0);
    await([&] { return old->descriptor_flag(0, 0) == 0; });
    old->publish(0, 0, 0, ids, 7);
    await([&] { return returns->descriptor_flags().at(0, Order::kAcquire) == 7; });
    const auto successor = network.dispatch(0);
    // It knows what its predecessor published, and that it is not acknowledged (R10).
    await([&] { return successor->descriptor_flag(0, 0) == 7; });
    EXPECT_EQ(successor->acknowledged(0, 0, Order::kAcquire), 0);
    old->publish(0, 1, 0, ids, 9);
    old->end().fail_connection(0);
    returns->acknowledge(0, 0, 7);
    await([&] { return successor->acknowledged(0, 0, Order::kAcquire) == 7; });
    successor->publish(0, 1, 0, ids, 8);
    await([&] { return returns->descriptor_flags().at(1, Order::kAcquire) != 0; });
    EXPECT_EQ(returns->descriptor_flags().at(1, Order::kAcquire), 8);
    EXPECT_NE(old->acknowledged(0, 0, Order::kAcquire), 7);
}

// Goal: UCX, which connects under the lock of its worker, does not wait there for a peer. Oracle:
// the mode of each socket when it is connected.
TEST(UcxTransport, WaitsForNoConnection) {
    num_connects = num_waiting_connects = 0;
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const auto dispatch = network.dispatch(0);
    const uint64_t deadline_us = steady_now_us() + 30'000'000;
    while (dispatch->descriptor_flag(0, 0) != 0 && steady_now_us() < deadline_us) {
        std::this_thread::yield();
    }
    EXPECT_EQ(dispatch->descriptor_flag(0, 0), 0) << "no connection came about";
    // The first is how a session finds a rank, the second what rows go over.
    EXPECT_GE(num_connects, 2);
    EXPECT_EQ(num_waiting_connects, 0);
}

// Goal: a neighbour that cannot serve a link through memory is reached over UCX. Method: a rank
// whose near address is another's, who closes whatever comes. Oracle: that the two talk.
TEST(UcxTransport, GoesOverUcxWhereANeighbourHasNoRoom) {
    UcxNetwork network(small_geometry(),
                       {.transports = "tcp", .devices = "lo", .near_by_memory = true});
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const NearAddress nobody = new_near_address().value();
    const int listener = listen_near(nobody, 64).value();
    UcxPlace place = network.book().get(Role::kFfn, 0);
    UcxAddress address = UcxAddress::parse(place.address).value();
    ASSERT_TRUE(address.near.has_value());
    address.near = nobody;
    place.address = address.bytes();
    network.book().set(Role::kFfn, 0, place);
    const auto dispatch = network.dispatch(0);
    int num_came = 0;
    const uint64_t deadline_us = steady_now_us() + 30'000'000;
    while (dispatch->descriptor_flag(0, 0) != 0 && steady_now_us() < deadline_us) {
        const int came = accept_near(listener);
        if (came >= 0) ++num_came;
        if (came >= 0) ::close(came);
        std::this_thread::yield();
    }
    EXPECT_EQ(dispatch->descriptor_flag(0, 0), 0) << "no connection came about";
    EXPECT_EQ(num_came, 1);
    EXPECT_FALSE(dispatch->links()[0].is_near);
    ::close(listener);
}

// Goal: a connection over which messages go stays. Oracle: how many were made, with two for each
// session and rank and as many again for sides that connect to each other at once.
TEST(UcxTransport, KeepsItsConnections) {
    num_connects = 0;
    Threads<UcxNetwork>(ucx_params()).run();
    const Geometry geometry = stress_geometry();
    EXPECT_LE(num_connects, static_cast<int>(4 * geometry.num_sessions * geometry.num_ffn_workers));
}

// Goal: R15. A round that the connection lost, and results that it lost, are sent again.
TEST(UcxTransport, SendsAgainWhatABrokenConnectionLost) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const auto dispatch = network.dispatch(0);
    std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
    ids[0] = 1;
    const std::vector<std::byte> row(512, std::byte{5});
    await([&] { return dispatch->descriptor_flag(0, 0) == 0; });
    for (int32_t round = 1; round <= 20; ++round) {
        dispatch->put_row(0, 0, 0, 0, row);
        if (round % 2 == 0) dispatch->end().fail_connection(0);
        dispatch->publish(0, 0, 0, ids, round);
        await([&] { return returns->descriptor_flags().at(0, Order::kAcquire) == round; });
        EXPECT_EQ(std::memcmp(returns->token_row(0, 0, 0, 0), row.data(), row.size()), 0);
        returns->put_result(0, 0, 0, 0, row, round);
        if (round % 3 == 0) returns->end().fail_connection(0);
        returns->acknowledge(0, 0, round);
        await([&] { return dispatch->acknowledged(0, 0, Order::kAcquire) == round; });
        EXPECT_EQ(observe(dispatch->result_flags(0)[0], Order::kAcquire), round);
    }
    EXPECT_EQ(dispatch->end().num_bad() + returns->end().num_bad(), 0u);
}

// Goal: R14. Results that come once more are dropped, whatever has been published since; R15 makes
// a rank send them twice when it acknowledged while the descriptor was on its way again. Method:
// the rank repeats what it acknowledged, as a round or as a refusal, when the next round has been
// published, when it has been acknowledged, and when the one after that has. Oracle: the
// connection's order, by which the repeated ones have come before the next round's; nothing was
// wrong, so the connection stands.
TEST(UcxTransport, DropsResultsThatComeOnceMore) {
    std::array<std::array<UcxMessage, 3>, 2> repeated;  // Outlive the worker that sends them.
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const auto dispatch = network.dispatch(0);
    const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
    const auto publish = [&](int32_t round) {
        dispatch->publish(0, 0, 0, ids, round);
        await([&] { return returns->descriptor_flags().at(0, Order::kAcquire) == round; });
    };
    const auto acknowledge = [&](int32_t word) {
        returns->acknowledge(0, 0, word);
        await([&] { return dispatch->acknowledged(0, 0, Order::kAcquire) == word; });
    };
    await([&] { return dispatch->descriptor_flag(0, 0) == 0; });
    int32_t round = 0;
    for (auto& messages : repeated) {
        publish(++round);
        const int32_t word = &messages == &repeated[0] ? round : refused_mark(round);
        const auto number = static_cast<uint64_t>(round);
        acknowledge(word);
        publish(++round);
        for (UcxMessage& message : messages) {
            message.header.kind = UcxKind::kResults;
            message.header.round = word;
            message.header.number = number;
            {
                const UcxWorker::Lock held = returns->end().lock();
                returns->end().send(0, message);
            }
            acknowledge(round);
            publish(++round);
        }
        acknowledge(round);
        EXPECT_EQ(dispatch->end().num_bad(), 0u) << word;
    }
}

// Goal: R6. Ids that are left out of a message are masked where it arrives.
TEST(UcxTransport, LeavesNoIdsOfTheRoundBefore) {
    UcxNetwork network(small_geometry());
    const auto returns = network.returns(0);
    const auto other_rank = network.returns(1);
    const auto dispatch = network.dispatch(0);
    await([&] { return dispatch->descriptor_flag(0, 0) == 0; });
    const size_t num_slots = small_geometry().slots_per_micro_batch();
    std::vector<int32_t> found(num_slots);
    int32_t round = 0;
    for (const size_t last : {num_slots - 1, size_t{2}, size_t{0}}) {
        std::vector<int32_t> ids(num_slots, kMaskedId);
        ids[last] = 1;
        dispatch->publish(0, 0, 0, ids, ++round);
        await([&] { return returns->descriptor_flags().at(0, Order::kAcquire) == round; });
        returns->copy_ids(0, 0, found);
        EXPECT_EQ(found, ids);
        returns->acknowledge(0, 0, round);
        await([&] { return dispatch->acknowledged(0, 0, Order::kAcquire) == round; });
    }
}

// Goal: R12 and R16. A round at a rank that is lost goes to another rank, and whatever the first
// one still says of it changes nothing. Method: the lost rank lives, and answers late: over the
// connection of before, and over the next one. Oracle: the flags and the row that the session sees,
// and that nothing is sent to the lost rank before it has let go.
TEST(UcxTransport, FencesOffARankThatAnswersLate) {
    UcxNetwork network(small_geometry());
    const std::unique_ptr<UcxReturn> ranks[] = {network.returns(0), network.returns(1)};
    const auto dispatch = network.dispatch(0);
    const auto flag_at = [&](uint32_t rank) {
        return ranks[rank]->descriptor_flags().at(0, Order::kAcquire);
    };
    const auto answer = [&](uint32_t rank, int32_t round, std::byte value) {
        ranks[rank]->put_result(0, 0, 0, 0, std::vector<std::byte>(512, value), round);
        ranks[rank]->acknowledge(0, 0, round);
    };
    DispatchLane lane(*dispatch, small_geometry(), 0);
    const auto publish_to = [&](uint32_t rank) {
        lane.begin(0);
        lane.put({rank, 0}, 0, 0, std::vector<std::byte>(512, std::byte{1}));
        return lane.publish(DispatchMode::kAsync);
    };
    await([&] { return lane.may_store(); });
    EXPECT_FALSE(lane.fence(0)) << "nothing stands there";
    const int32_t lost = publish_to(0);
    await([&] { return flag_at(0) == lost; });
    EXPECT_FALSE(lane.may_store());
    EXPECT_EQ(lane.voidable(0), std::nullopt) << "afdd could not say that nobody executes it";

    ASSERT_TRUE(lane.fence(0));
    answer(0, lost, std::byte{66});
    EXPECT_TRUE(lane.is_voided());
    ASSERT_TRUE(lane.may_store());
    EXPECT_TRUE(lane.has_voids());
    EXPECT_FALSE(lane.may_store_to(0));
    const int32_t next = publish_to(1);
    EXPECT_NE(next, lost);
    // The rank says on the next connection what stands there, and that it has let go.
    await([&] { return lane.may_store_to(0); });
    EXPECT_EQ(lane.poll(), RoundState::kPending) << "what it answered is not stored";
    await([&] { return flag_at(1) == next; });
    answer(1, next, std::byte{2});
    await([&] { return lane.poll() == RoundState::kReady; });
    EXPECT_EQ(lane.row(0, 0)[0], std::byte{2});

    // The same, and it answers when the next connection is there.
    await([&] { return lane.may_store(); });
    const int32_t again = publish_to(0);
    await([&] { return flag_at(0) == again; });
    ASSERT_TRUE(lane.fence(0));
    await([&] { return dispatch->descriptor_flag(0, 0) == again; });
    EXPECT_TRUE(lane.is_voided());
    EXPECT_FALSE(lane.may_store_to(0));
    const int32_t last = publish_to(1);
    answer(0, again, std::byte{66});
    await([&] { return lane.may_store_to(0); });
    EXPECT_EQ(lane.poll(), RoundState::kPending);
    await([&] { return flag_at(1) == last; });
    answer(1, last, std::byte{3});
    await([&] { return lane.poll() == RoundState::kReady; });
    EXPECT_EQ(lane.row(0, 0)[0], std::byte{3});
    EXPECT_EQ(dispatch->end().num_bad() + ranks[0]->end().num_bad() + ranks[1]->end().num_bad(),
              0u);
}

// Goal: R12 and R10. A new session does without a rank that it has heard nothing of, and stores
// nothing there before the rank has said what stands there and has let go of it.
TEST(UcxTransport, BeginsWithoutARankThatIsLost) {
    UcxNetwork network(small_geometry());
    const auto other = network.returns(1);
    const auto dispatch = network.dispatch(0);
    DispatchLane lane(*dispatch, small_geometry(), 0);
    await([&] { return dispatch->descriptor_flag(1, 0) == 0; });
    EXPECT_FALSE(lane.may_store());
    ASSERT_TRUE(lane.fence(0));
    EXPECT_FALSE(lane.fence(0)) << "once is enough";
    ASSERT_TRUE(lane.may_store());
    EXPECT_FALSE(lane.may_store_to(0));
    EXPECT_TRUE(lane.may_store_to(1));
    const auto successor = network.returns(0);
    await([&] { return lane.may_store_to(0); });
}

// Goal: a worker whose receiving thread UCX holds ends by itself. Method: the lock is held, as it
// is by a call that does not come back, while the data thread sleeps again and again. Oracle: its
// last words, by whichever thread notices first; before, it sleeps as long with the lock free.
TEST(UcxTransportDeathTest, AWorkerThatUcxHoldsEnds) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // More than one look can add (schedule/ucx/turn_watch.h).
    constexpr uint64_t kStuckUs = 2'000'000;
    const auto sleep_for = [](UcxReturn& returns, uint64_t time_us) {
        Doorbell doorbell = returns.doorbell();
        const uint64_t end_us = steady_now_us() + time_us;
        while (steady_now_us() < end_us) doorbell.wait(100'000);
    };
    EXPECT_DEATH(
        {
            UcxNetwork network(small_geometry());
            network.set_stuck_us(kStuckUs);
            const auto returns = network.returns(0);
            sleep_for(*returns, 3 * kStuckUs / 2);
            std::fputs("lives while it is free; ", stderr);
            const UcxWorker::Lock held = returns->end().lock();
            sleep_for(*returns, 2 * kStuckUs);
        },
        "lives while it is free; .*UCX has not "
        "(come back to the thread that receives|given the lock back) for 2000 ms");
}

// Goal: a data thread that publishes while UCX holds the lock does not wait for ever, and the
// process ends as its owner has it. Method: the lock is held while another thread publishes.
// Oracle: the exit code; until then it waits as long as it may.
TEST(UcxTransportDeathTest, APublicationThatUcxHoldsUpEndsTheWorker) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    constexpr uint64_t kStuckUs = 500'000;
    EXPECT_EXIT(
        {
            UcxConfig config = UcxNetwork::default_config();
            config.stuck_us = kStuckUs;
            config.end_stuck = [](const std::string& why) {
                std::fputs(why.c_str(), stderr);
                std::_Exit(10);
            };
            UcxNetwork network(small_geometry(), config);
            const auto dispatch = network.dispatch(0);
            const std::vector<int32_t> ids(small_geometry().slots_per_micro_batch(), kMaskedId);
            const UcxWorker::Lock held = dispatch->end().lock();
            std::thread([&] { dispatch->publish(0, 0, 0, ids, 1); }).join();
            std::fputs("it has published", stderr);
        },
        testing::ExitedWithCode(10),
        "UCX has not given the lock back for 500 ms");
}

}  // namespace
}  // namespace afd::schedule::stress
