// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/protocol/protocol_body.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "schedule/dispatch/ready_scan.h"

namespace afd::schedule::stress {
namespace {

// Relaxed in all of this file: see Progress.
constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
constexpr size_t kRowWords = 64;
constexpr uint32_t kIdsPerRank = 8;
constexpr uint64_t kLookUs = 20000;
using Row = std::array<uint64_t, kRowWords>;

struct Place {
    uint32_t session;
    uint32_t micro_batch;
    uint32_t token_idx;
    uint32_t k;

    uint64_t word() const {
        return (uint64_t{session} << 48) | (uint64_t{micro_batch} << 32) |
               (uint64_t{token_idx} << 16) | k;
    }
};

// splitmix64.
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

Row make_row(const Place& place, uint64_t sequence) {
    Row row{place.word(), sequence};
    for (size_t i = 2; i < kRowWords; ++i) row[i] = mix(row[0] ^ mix(sequence + i));
    return row;
}

Row result_of(const Row& row, uint32_t rank, int32_t layer_id, int32_t local_id) {
    const uint64_t key = mix((uint64_t{rank} << 40) ^ (static_cast<uint64_t>(layer_id) << 20) ^
                             static_cast<uint64_t>(local_id));
    Row result;
    for (size_t i = 0; i < kRowWords; ++i) result[i] = mix(row[i] ^ key);
    return result;
}

std::span<const std::byte> bytes_of(const Row& row) {
    return std::as_bytes(std::span(row));
}

Row copy_row(const std::byte* bytes) {
    Row row;
    std::memcpy(row.data(), bytes, sizeof(row));
    return row;
}

void fail(Progress& progress, const char* what, const Place& place, uint64_t sequence) {
    std::fprintf(stderr,
                 "%s: session %u, micro-batch %u, token %u, k %u, sequence %llu\n",
                 what,
                 place.session,
                 place.micro_batch,
                 place.token_idx,
                 place.k,
                 static_cast<unsigned long long>(sequence));
    progress.failed.store(1, kRelaxed);
    progress.stop.store(1, kRelaxed);
}

bool must_stop(const Progress& progress) {
    return progress.stop.load(kRelaxed) != 0;
}

// What stands for a gate: who answers slot k of an offered row, and as which expert.
ExpertReplica choice_of(const Row& row, uint32_t k, uint32_t num_ranks) {
    const uint64_t choice = mix(row[2] + k);
    return {static_cast<uint32_t>(choice % num_ranks),
            static_cast<int32_t>((choice >> 32) % kIdsPerRank)};
}

struct Expected {
    Place place;
    Place source;  // Where its row was put: slot 0 of an offered token.
    ExpertReplica target;
};

// What a session knows about one micro-batch.
struct LaneWork {
    explicit LaneWork(DispatchLane new_lane) : lane(std::move(new_lane)) {}

    DispatchLane lane;
    bool in_flight = false;
    uint64_t sequence = 0;
    std::vector<Expected> expected;
};

void offer_token(LaneWork& work, const Place& source, const Geometry& geometry) {
    const Row row = make_row(source, work.sequence);
    work.lane.offer(source.token_idx, geometry.selected_expert_num, bytes_of(row));
    for (uint32_t k = 0; k < geometry.selected_expert_num; ++k) {
        Place place = source;
        place.k = k;
        work.expected.push_back({place, source, choice_of(row, k, geometry.num_ffn_workers)});
    }
}

void start_round(LaneWork& work,
                 uint32_t session,
                 const Geometry& geometry,
                 const Params& params,
                 Progress& progress,
                 std::mt19937_64& random) {
    work.sequence = progress.next_sequence.fetch_add(1, kRelaxed);
    work.expected.clear();
    work.lane.begin(static_cast<int32_t>(random() % params.num_layers));
    const bool offers = params.router == RouterPlacement::kFfn;
    const uint64_t num_tokens = random() % (geometry.micro_batch_size + 1);
    for (uint32_t bs = 0; bs < num_tokens; ++bs) {
        if (offers && random() % 2 == 0) {
            offer_token(work, {session, work.lane.micro_batch(), bs, 0}, geometry);
            continue;
        }
        for (uint32_t k = 0; k < geometry.selected_expert_num; ++k) {
            if (random() % 4 == 0) continue;
            const Place place{session, work.lane.micro_batch(), bs, k};
            const ExpertReplica target{static_cast<uint32_t>(random() % geometry.num_ffn_workers),
                                       static_cast<int32_t>(random() % kIdsPerRank)};
            work.lane.put(target, bs, k, bytes_of(make_row(place, work.sequence)));
            work.expected.push_back({place, place, target});
        }
    }
    work.lane.publish(params.mode);
    work.in_flight = true;
}

bool check_results(const LaneWork& work, Progress& progress) {
    for (const Expected& slot : work.expected) {
        const Row found = copy_row(work.lane.row(slot.place.token_idx, slot.place.k).data());
        const Row row = make_row(slot.source, work.sequence);
        if (found != result_of(row, slot.target.rank, work.lane.layer_id(), slot.target.local_id)) {
            fail(progress, "stale or torn result accepted", slot.place, work.sequence);
            return false;
        }
    }
    return true;
}

bool lane_can_go_on(LaneWork& work, Order order) {
    if (work.in_flight ? work.lane.poll() != RoundState::kPending : work.lane.may_store()) {
        return true;
    }
    return order == Order::kSeqCst && work.lane.acknowledged(order);
}

struct Gathered {
    Place place;
    Place source;
    int32_t layer_id;
    int32_t local_id;
    Row row;
};

// Adds the slots of an offered token that are this rank's.
void gather_offered(const Gathered& offered,
                    const Geometry& geometry,
                    uint32_t rank,
                    std::vector<Gathered>& rows) {
    for (uint32_t k = 0; k < geometry.selected_expert_num; ++k) {
        const ExpertReplica target = choice_of(offered.row, k, geometry.num_ffn_workers);
        if (target.rank != rank) continue;
        rows.push_back(offered);
        rows.back().place.k = k;
        rows.back().local_id = target.local_id;
    }
}

void gather(const ReturnTransport& transport, const ReadyScan& scan, std::vector<Gathered>& rows) {
    rows.clear();
    const Geometry& geometry = transport.layout().geometry;
    const uint64_t num_slots = geometry.slots_per_micro_batch();
    for (size_t i = 0; i < scan.taken().size(); ++i) {
        const ReadyDescriptor& descriptor = scan.taken()[i];
        for (uint32_t slot = 0; slot < num_slots; ++slot) {
            const int32_t id = scan.ids(i)[slot];
            if (id == kMaskedId) continue;
            const Place place{descriptor.session,
                              descriptor.micro_batch,
                              slot / geometry.selected_expert_num,
                              slot % geometry.selected_expert_num};
            const std::byte* row =
                transport.token_row(place.session, place.micro_batch, place.token_idx, place.k);
            const Gathered gathered{place, place, descriptor.layer_id, id, copy_row(row)};
            if (id == kOfferedId) {
                gather_offered(gathered, geometry, transport.rank(), rows);
            } else {
                rows.push_back(gathered);
            }
        }
    }
}

bool return_results(ReadyScan& scan,
                    const std::vector<Gathered>& rows,
                    uint32_t rank,
                    Progress& progress) {
    for (const Gathered& gathered : rows) {
        const Place& place = gathered.place;
        if (gathered.row != make_row(gathered.source, gathered.row[1])) {
            fail(progress, "torn or foreign row gathered", place, gathered.row[1]);
            return false;
        }
        const Row result = result_of(gathered.row, rank, gathered.layer_id, gathered.local_id);
        scan.put_result(
            place.session, place.micro_batch, place.token_idx, place.k, bytes_of(result));
    }
    return true;
}

}  // namespace

Fate::Fate(const Params& params, Progress& progress, bool is_process)
    : params_(&params),
      progress_(&progress),
      is_process_(is_process),
      random_(params.seed * 7919 + progress.num_incarnations.fetch_add(1, kRelaxed)) {}

bool Fate::at(Point point) {
    // A point that killed nobody so far kills its 30th visitor, so that every one does its work.
    constexpr uint32_t kVisitsAtMost = 30;
    if (died_) return true;
    const auto index = static_cast<size_t>(point);
    const uint32_t visits = progress_->visits[index].fetch_add(1, kRelaxed) + 1;
    if (random_() % 16 == 0) ::usleep(static_cast<useconds_t>(random_() % 200));
    if (params_->crash_one_in == 0) return false;
    const bool is_due = visits >= kVisitsAtMost && progress_->crashes[index].load(kRelaxed) == 0;
    if (!is_due && random_() % params_->crash_one_in != 0) return false;
    progress_->crashes[index].fetch_add(1, kRelaxed);
    if (is_process_) ::kill(::getpid(), SIGKILL);
    died_ = true;
    return true;
}

bool run_attention(DispatchTransport& transport,
                   const Params& params,
                   Progress& progress,
                   Fate& fate) {
    const Geometry geometry = stress_geometry();
    const uint32_t session = transport.session();
    std::atomic<uint32_t>& rounds_done = progress.rounds_done[session];
    std::mt19937_64 random(params.seed ^ progress.next_sequence.fetch_add(1, kRelaxed));
    std::vector<LaneWork> lanes;
    for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
        lanes.emplace_back(DispatchLane(transport, geometry, m));
    }
    AdaptiveWait wait(transport.doorbell(), 20, false);
    transport.ring_peers();
    const auto is_done = [&] {
        return rounds_done.load(kRelaxed) >= params.rounds_per_session &&
               progress.goes_on.load(kRelaxed) == 0;
    };
    while (!must_stop(progress) && !is_done()) {
        bool went_on = false;
        for (LaneWork& work : lanes) {
            if (work.in_flight && work.lane.poll() == RoundState::kReady) {
                if (!check_results(work, progress)) return true;
                rounds_done.fetch_add(1, kRelaxed);
                work.in_flight = false;
                went_on = true;
                fate.at(Point::kResultsAccepted);
            } else if (work.in_flight && work.lane.poll() == RoundState::kRefused) {
                progress.num_refused.fetch_add(1, kRelaxed);
                work.in_flight = false;
                went_on = true;
            } else if (work.in_flight && random() % 64 == 0) {
                work.in_flight = false;  // The request is cancelled; its round goes on.
            } else if (!work.in_flight && work.lane.may_store()) {
                start_round(work, session, geometry, params, progress, random);
                went_on = true;
            }
            if (fate.died()) return false;
        }
        if (went_on) continue;
        if (fate.at(Point::kInFlight)) return false;
        wait.until(steady_now_us() + kLookUs, true, [&](Order order) {
            return std::any_of(lanes.begin(), lanes.end(), [order](LaneWork& work) {
                return lane_can_go_on(work, order);
            });
        });
    }
    return true;
}

bool run_ffn(ReturnTransport& transport, const Params& params, Progress& progress, Fate& fate) {
    const Geometry& geometry = transport.layout().geometry;
    const uint32_t rank = transport.rank();
    const std::vector<LayerExperts> layers(params.num_layers,
                                           {kIdsPerRank * geometry.num_ffn_workers, 0});
    const ExpertPlacement placement =
        ExpertPlacement::round_robin(layers, geometry.num_ffn_workers).value();
    ReadyScan scan(transport, placement, params.router);
    FfnScheduler scheduler({.policy = params.policy,
                            .num_sessions = geometry.num_sessions,
                            .num_micro_batches = geometry.num_micro_batches,
                            .deadline_us = 100,
                            .active_us = 5000,
                            .sync_group_size = 2});
    AdaptiveWait wait(transport.doorbell(), 20, false);
    std::vector<Gathered> rows;
    transport.ring_peers();
    while (!must_stop(progress)) {
        const uint64_t now_us = steady_now_us();
        const auto decision = scan.next_pass(scheduler, now_us);
        // A descriptor without a row is acknowledged by the scan.
        if (fate.died()) return false;
        if (decision.empty()) {
            const uint64_t until_us = std::min(now_us + kLookUs, scheduler.decide_again_us());
            wait.until(until_us, true, [&](Order order) {
                return must_stop(progress) || scan.has_new(order);
            });
            continue;
        }
        if (fate.at(Point::kScanned)) return false;
        scan.take(decision);
        gather(transport, scan, rows);
        if (fate.at(Point::kGathered)) return false;
        if (!return_results(scan, rows, rank, progress)) return true;
        if (fate.at(Point::kResultsPut)) return false;
        scan.acknowledge_taken();
        if (fate.at(Point::kAcknowledged)) return false;
        const ReadyScanErrors& errors = scan.errors();
        if (errors.num_bad_flags + errors.num_bad_layers + errors.num_bad_ids != 0) {
            fail(progress, "a descriptor failed validation", {}, 0);
        }
    }
    return true;
}

void expect_refusals_explained(const Progress& progress) {
    uint32_t num_deaths = 0;
    for (const Point point : {Point::kGathered,
                              Point::kBetweenResults,
                              Point::kResultsPut,
                              Point::kBeforeAcknowledge}) {
        num_deaths += progress.crashes[static_cast<size_t>(point)].load(kRelaxed);
    }
    // A pass has at most one descriptor of each session.
    EXPECT_LE(progress.num_refused.load(kRelaxed) * ExecutionLog::kDeadly,
              num_deaths * kSessionsAtMost);
}

void expect_every_point_killed(const Progress& progress) {
    for (size_t point = 0; point < kNumPoints; ++point) {
        EXPECT_GT(progress.crashes[point].load(kRelaxed), 0u) << "crash point " << point;
    }
}

}  // namespace afd::schedule::stress
