// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "daemon/exposition/families.h"

namespace afd::daemon {
namespace {

double in_seconds(uint64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

// Calls visit(worker of the status, its labels, its counts) for those of a role; empty: for all.
template <typename Visit>
void for_each_worker(const MetricsSnapshot& snapshot, const std::string& role, Visit&& visit) {
    for (size_t i = 0; i < snapshot.workers.size(); ++i) {
        const client::Worker& worker = snapshot.status.workers(static_cast<int>(i));
        if (!role.empty() && worker.role() != role) continue;
        visit(worker, worker_labels(worker), snapshot.workers[i]);
    }
}

MetricLabels labels_with(MetricLabels labels, const char* name, const std::string& value) {
    labels.emplace_back(name, value);
    return labels;
}

constexpr TraceKind kAttentionPhases[] = {TraceKind::kAttention,
                                          TraceKind::kDispatch,
                                          TraceKind::kBlock,
                                          TraceKind::kCombine,
                                          TraceKind::kHead};
constexpr TraceKind kFfnPhases[] = {
    TraceKind::kGather, TraceKind::kExperts, TraceKind::kReturn, TraceKind::kBlock};

void add_time(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.counter("afd_busy_seconds_total",
                     "Time in which the data thread works, by what it does");
    for_each_worker(snapshot, "", [&](const auto& worker, const auto& labels, const auto& counts) {
        const auto add = [&](TraceKind phase) {
            families.value(labels_with(labels, "phase", std::string(trace_kind_name(phase))),
                           in_seconds(counts.counter(phase_counter(phase))));
        };
        if (worker.role() == "attention") {
            for (const TraceKind phase : kAttentionPhases) add(phase);
        } else {
            for (const TraceKind phase : kFfnPhases) add(phase);
        }
    });
    families.counter("afd_bubble_seconds_total",
                     "Time in which the data thread waits for the other side, which has the work");
    for_each_worker(snapshot, "", [&](const auto&, const auto& labels, const auto& counts) {
        families.value(labels, in_seconds(counts.counter(Counter::kBubbleNs)));
    });
    families.counter("afd_idle_seconds_total",
                     "Time in which the data thread waits because there is no work");
    for_each_worker(snapshot, "", [&](const auto&, const auto& labels, const auto& counts) {
        families.value(labels, in_seconds(counts.counter(Counter::kIdleNs)));
    });
}

void add_waits(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.counter("afd_wait_total", "Waits of the data thread; spin: over before it slept");
    for_each_worker(snapshot, "", [&](const auto&, const auto& labels, const auto& counts) {
        // A word each: a difference of two, which are read at different times, could fall.
        families.value(labels_with(labels, "kind", "spin"),
                       static_cast<double>(counts.counter(Counter::kSpun)));
        families.value(labels_with(labels, "kind", "sleep"),
                       static_cast<double>(counts.counter(Counter::kSlept)));
    });
    families.counter("afd_wait_seconds_total", "Time in these waits");
    for_each_worker(snapshot, "", [&](const auto&, const auto& labels, const auto& counts) {
        families.value(labels_with(labels, "kind", "spin"),
                       in_seconds(counts.counter(Counter::kSpinNs)));
        families.value(labels_with(labels, "kind", "sleep"),
                       in_seconds(counts.counter(Counter::kSleepNs)));
    });
    families.counter("afd_round_timeouts_total",
                     "Micro-batches that were abandoned because a round took too long");
    for_each_worker(
        snapshot, "attention", [&](const auto&, const auto& labels, const auto& counts) {
            families.value(labels, static_cast<double>(counts.counter(Counter::kTimeouts)));
        });
}

void add_in_flight(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.gauge("afd_microbatches_inflight", "Micro-batches that are with the experts now");
    for_each_worker(
        snapshot, "attention", [&](const auto&, const auto& labels, const auto& counts) {
            families.value(labels, static_cast<double>(counts.counter(Counter::kInFlightNow)));
        });
}

void add_handoffs(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.histogram("afd_handoff_seconds",
                       "Of sampled rounds. a2f: from publishing rows to an FFN worker taking them; "
                       "f2a: from its last result to the look that found all results");
    families.seconds({{"direction", "a2f"}}, snapshot.hops.a2f);
    families.seconds({{"direction", "f2a"}}, snapshot.hops.f2a);
    families.histogram("afd_round_trip_seconds",
                       "From publishing a round to all results of an FFN worker (peer)");
    for_each_worker(
        snapshot, "attention", [&](const auto&, const auto& labels, const auto& counts) {
            for (size_t rank = 0; rank < counts.peer_waits.size(); ++rank) {
                families.seconds(labels_with(labels, "peer", std::to_string(rank)),
                                 counts.peer_waits[rank]);
            }
        });
}

void add_counter(const MetricsSnapshot& snapshot,
                 const std::string& role,
                 const char* name,
                 const char* help,
                 Counter counter,
                 FamilyList& families) {
    families.counter(name, help);
    for_each_worker(snapshot, role, [&](const auto&, const auto& labels, const auto& counts) {
        families.value(labels, static_cast<double>(counts.counter(counter)));
    });
}

void add_work(const MetricsSnapshot& snapshot, FamilyList& families) {
    const auto add = [&](const char* role, const char* name, const char* help, Counter counter) {
        add_counter(snapshot, role, name, help, counter, families);
    };
    add("",
        "afd_rounds_total",
        "Attention: rounds published. FFN: descriptors acknowledged",
        Counter::kRounds);
    add("",
        "afd_steps_total",
        "Attention: micro-batches carried through all layers. FFN: passes",
        Counter::kSteps);
    add("", "afd_rows_total", "Rows computed", Counter::kRows);
    add("attention", "afd_sampled_tokens_total", "Tokens sampled", Counter::kTokens);
    add("ffn",
        "afd_refused_descriptors_total",
        "Descriptors and ids that failed validation, or that killed a worker three times",
        Counter::kRefused);
    add("ffn",
        "afd_scheduler_bad_choices_total",
        "Choices of a library's scheduler that named no descriptor, or a session's second one",
        Counter::kBadChoices);
    add("ffn",
        "afd_scheduler_overruled_total",
        "Decisions taken from a library's scheduler that left the oldest descriptor too long",
        Counter::kOverruled);
    add("attention",
        "afd_two_phase_rounds_total",
        "Rounds of long prompts in two phases",
        Counter::kTwoPhaseRounds);
    add("attention",
        "afd_two_phase_fallbacks_total",
        "Two-phase batches that fell back to the windows",
        Counter::kTwoPhaseFallbacks);
}

using AddHistogram = void (FamilyList::*)(const MetricLabels&, const HistogramCounts&);

void add_distributions(const MetricsSnapshot& snapshot, FamilyList& families) {
    const auto add = [&](const char* role,
                         const char* name,
                         const char* help,
                         Histogram histogram,
                         AddHistogram add_histogram) {
        families.histogram(name, help);
        for_each_worker(snapshot, role, [&](const auto&, const auto& labels, const auto& counts) {
            (families.*add_histogram)(labels, counts.histogram(histogram));
        });
    };
    add("attention",
        "afd_step_seconds",
        "A micro-batch from its embedding to its sampled tokens",
        Histogram::kStepNs,
        &FamilyList::seconds);
    add("attention",
        "afd_micro_batches_in_flight",
        "Micro-batches with the experts at each dispatch, including that one",
        Histogram::kInFlight,
        &FamilyList::numbers);
    add("ffn",
        "afd_descriptor_age_seconds",
        "From the scan that found a descriptor to the pass that takes it",
        Histogram::kAgeNs,
        &FamilyList::seconds);
    add("ffn",
        "afd_pass_seconds",
        "From taking a pass to acknowledging it",
        Histogram::kPassNs,
        &FamilyList::seconds);
    add("ffn", "afd_pass_rows", "Rows of a pass", Histogram::kPassRows, &FamilyList::numbers);
    add("ffn",
        "afd_pass_sessions",
        "Descriptors of a pass, each of another session",
        Histogram::kPassDescriptors,
        &FamilyList::numbers);
    add("ffn",
        "afd_ready_descriptors",
        "Descriptors that were ready when a pass was taken",
        Histogram::kReady,
        &FamilyList::numbers);
}

// As the session's end measured them; nothing of a link that was not.
void add_links(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.gauge("afd_link_up",
                   "1 if an attention worker reaches an FFN worker (peer) over transport = ucx");
    for_each_worker(
        snapshot, "attention", [&](const auto& worker, const auto& labels, const auto&) {
            for (int rank = 0; rank < worker.links_size(); ++rank) {
                families.value(labels_with(labels, "peer", std::to_string(rank)),
                               worker.links(rank).is_open() ? 1 : 0);
            }
        });
    const auto add = [&](double (*value)(const client::Link&)) {
        for_each_worker(
            snapshot, "attention", [&](const auto& worker, const auto& labels, const auto&) {
                for (int rank = 0; rank < worker.links_size(); ++rank) {
                    const double found = value(worker.links(rank));
                    if (found == 0) continue;
                    families.value(labels_with(labels, "peer", std::to_string(rank)), found);
                }
            });
    };
    families.gauge("afd_link_latency_seconds",
                   "One way between an attention and an FFN worker (peer), over transport = ucx");
    add([](const client::Link& link) { return in_seconds(link.latency_ns()); });
    families.gauge("afd_link_bytes_per_second",
                   "Throughput of such a link, as measured by a probe");
    add([](const client::Link& link) { return static_cast<double>(link.bytes_per_s()); });
}

}  // namespace

void add_worker_families(const MetricsSnapshot& snapshot, FamilyList& families) {
    add_time(snapshot, families);
    add_waits(snapshot, families);
    add_in_flight(snapshot, families);
    add_handoffs(snapshot, families);
    add_work(snapshot, families);
    add_distributions(snapshot, families);
    add_links(snapshot, families);
}

}  // namespace afd::daemon
