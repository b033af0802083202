// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "daemon/exposition/families.h"
#include "proto/state_names.h"

namespace afd::daemon {
namespace {

constexpr std::string_view kStates[] = {kInstanceStarting,
                                        kInstanceReady,
                                        kInstanceDraining,
                                        kInstanceDegraded,
                                        kInstanceHalted,
                                        kInstanceFailed};

using WorkerValue = double (*)(const client::Worker&);

void add_each(const MetricsSnapshot& snapshot, FamilyList& families, WorkerValue value) {
    for (const client::Worker& worker : snapshot.status.workers()) {
        families.value(worker_labels(worker), value(worker));
    }
}

void add_workers(const MetricsSnapshot& snapshot, FamilyList& families) {
    families.gauge("afd_worker_up", "1 if the worker serves");
    add_each(snapshot, families, [](const client::Worker& worker) {
        return worker.state() == kWorkerReady ? 1.0 : 0.0;
    });
    families.counter("afd_worker_restarts_total", "Processes of the worker after its first");
    add_each(snapshot, families, [](const client::Worker& worker) {
        return static_cast<double>(worker.num_restarts());
    });
    families.gauge(
        "afd_worker_heartbeat_age_seconds",
        "Time since the data thread last made progress; it grows while there is no work");
    add_each(snapshot, families, [](const client::Worker& worker) {
        return static_cast<double>(worker.heartbeat_age_ms()) / 1e3;
    });
    families.gauge("afd_kv_tokens",
                   "Tokens for which its KV cache has room (total), those reserved, and those "
                   "held");
    for (const client::Worker& worker : snapshot.status.workers()) {
        if (worker.role() != "attention") continue;
        MetricLabels labels = worker_labels(worker);
        labels.emplace_back("kind", "total");
        families.value(labels, static_cast<double>(worker.kv_tokens_total()));
        labels.back().second = "reserved";
        families.value(labels, static_cast<double>(worker.kv_tokens_used()));
        labels.back().second = "held";
        families.value(labels, static_cast<double>(worker.kv_tokens_held()));
        if (snapshot.status.kv_windowed_tokens() == 0) continue;
        labels.back().second = "windowed_total";
        families.value(labels, static_cast<double>(snapshot.status.kv_windowed_tokens()));
        labels.back().second = "windowed_reserved";
        families.value(labels, static_cast<double>(worker.kv_windowed_tokens_used()));
    }
}

// Of an instance with workers on other hosts.
void add_hosts(const client::Status& status, FamilyList& families) {
    families.gauge("afd_host_joined", "1 if the host has joined the afdd that leads");
    for (const client::Host& host : status.hosts()) {
        families.value({{"host", host.name()}}, host.address().empty() ? 0 : 1);
    }
    families.gauge("afd_certificate_expiry_seconds",
                   "Unix time at which the certificate of the afdd that leads, or its CA, expires");
    if (status.certificate_expires_s() != 0) {
        families.value(static_cast<double>(status.certificate_expires_s()));
    }
}

}  // namespace

void add_instance_families(const MetricsSnapshot& snapshot, FamilyList& families) {
    const client::Status& status = snapshot.status;
    families.gauge("afd_build_info", "Always 1; the labels tell what runs");
    families.value({{"version", status.version()}, {"compiler", __VERSION__}}, 1);
    families.gauge("afd_instance_info", "Always 1; the labels tell how the instance is set up");
    families.value({{"topology", status.topology()},
                    {"router", status.router()},
                    {"shared_experts", status.shared_experts()},
                    {"dispatch_dtype", status.dispatch_dtype()},
                    {"numeric_class", status.numeric_class()},
                    {"context_length", std::to_string(status.context_length())}},
                   1);
    families.gauge("afd_state", "1 for the current state of the instance");
    for (const std::string_view state : kStates) {
        families.value({{"state", std::string(state)}}, status.state() == state ? 1 : 0);
    }
    families.gauge("afd_uptime_seconds", "Time since the instance started");
    families.value(static_cast<double>(status.uptime_ms()) / 1e3);
    families.gauge("afd_shm_bytes", "Shared memory of windows, control and metrics segments");
    families.value(static_cast<double>(snapshot.shared_memory_bytes));
    add_workers(snapshot, families);
    add_hosts(status, families);
}

}  // namespace afd::daemon
