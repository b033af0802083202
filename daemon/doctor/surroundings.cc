// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/surroundings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/config/comma_list.h"
#include "daemon/config/join_address.h"
#include "daemon/config/own_host_name.h"
#include "daemon/instance/ucx_network.h"
#include "daemon/instance/weight_cache_choice.h"
#include "daemon/placement/ucx_host.h"
#include "model/weight_cache/weight_cache.h"
#include "proto/failure.h"
#include "proto/socket_path.h"

namespace afd::daemon {

namespace {

bool has_cluster(const Config& config) {
    return config.has_hosts() || !config.join.empty();
}

Finding failed(const char* subject, const Error& why, const char* remedy) {
    return {subject, Finding::Level::kFailed, why.message, remedy, ExitCode::kUsage};
}

Finding examine_certificates(const Config& config, int64_t now_s) {
    constexpr const char* kSubject = "certificates";
    Finding finding{kSubject, Finding::Level::kOk, "none needed: no other hosts", ""};
    if (!has_cluster(config)) return finding;
    const auto identity = ClusterIdentity::load(config.cluster_dir, own_host_name(config));
    if (!identity.ok())
        return failed(kSubject, identity.error(), "afdd starts once they are right");
    constexpr int64_t kDayS = 86'400;
    finding.text = fmt::format("of host '{}', for {} days",
                               identity.value().name(),
                               (identity.value().expires_s() - now_s) / kDayS);
    if (const std::string expiry = identity.value().expiry_text(now_s); !expiry.empty()) {
        finding.level = Finding::Level::kWarning;
        finding.remedy = expiry;
    }
    return finding;
}

Result<> check_directory_of(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path().string();
    const std::string directory = parent.empty() ? "." : parent;
    std::error_code error;
    if (std::filesystem::is_directory(directory, error) &&
        ::access(directory.c_str(), W_OK | X_OK) == 0) {
        return {};
    }
    return failed_precondition("'{}' cannot be made: '{}' is no directory that this user can write",
                               with(path, directory));
}

Result<std::string> runtime_directory_of(const Config& config) {
    AFD_ASSIGN(const InstancePaths paths, instance_paths(config.instance));
    const Result<> there = check_runtime_directory(paths.directory);
    if (!there.ok() && there.error().code != Code::kNotFound) return there.error();
    if (!there.ok()) AFD_TRY(check_directory_of(paths.directory));
    const bool is_made_with_it =
        !there.ok() && std::filesystem::path(config.socket).lexically_normal().parent_path() ==
                           std::filesystem::path(paths.directory).lexically_normal();
    // A host that joins has no clients.
    const bool has_socket = config.join.empty() && !config.socket.empty();
    if (has_socket && !is_made_with_it) AFD_TRY(check_directory_of(config.socket));
    return paths.directory + (there.ok() ? "" : ", which is made at the start");
}

Finding examine_runtime(const Config& config) {
    constexpr const char* kSubject = "runtime";
    const auto directory = runtime_directory_of(config);
    if (directory.ok()) return {kSubject, Finding::Level::kOk, directory.value(), ""};
    return failed(kSubject,
                  directory.error(),
                  "set XDG_RUNTIME_DIR to a directory of your own, or another socket");
}

Result<> check_cache(const std::string& directory) {
    std::error_code error;
    if (std::filesystem::exists(directory, error)) {
        AFD_TRY(model::WeightCache::open(directory));
        return {};
    }
    if (model::WeightCache::is_usable(directory)) return {};
    return failed_precondition(
        "{}: is not there, and this user cannot make it; set weight_cache to a directory of yours, "
        "or to off",
        with(directory));
}

Finding with_room(Finding finding, const std::string& directory, const CacheRoom& room) {
    if (room.missing_bytes > 0) {
        finding.text += fmt::format("; {} MiB are to be packed", room.missing_bytes >> 20);
    }
    if (room.is_memory) finding.text += "; it is memory, which the kernel cannot take back";
    if (room.lacking_bytes() > 0) {
        finding.level = Finding::Level::kWarning;
        finding.remedy = room.warning(directory);
    }
    return finding;
}

Finding examine_cache(const Config& config, const CacheRoom& room) {
    constexpr const char* kSubject = "cache";
    const WeightCacheChoice choice = choose_weight_cache(config);
    Finding finding{kSubject, Finding::Level::kOk, choice.directory, ""};
    if (!choice.why_nowhere.empty()) {
        finding.level = Finding::Level::kWarning;
        finding.text = "packed weights are not kept: " + choice.why_nowhere;
        finding.remedy = "each start packs the weights anew: name a directory with weight_cache";
        return finding;
    }
    if (choice.directory.empty()) {
        finding.text = "off: packed weights are not kept";
        return finding;
    }
    const Result<> usable = check_cache(choice.directory);
    std::error_code error;
    if (usable.ok() && !std::filesystem::exists(choice.directory, error)) {
        finding.text += ", which is made at the start";
    }
    if (usable.ok()) return with_room(finding, choice.directory, room);
    if (!choice.is_default) return failed(kSubject, usable.error(), "or weight_cache = off");
    finding.level = Finding::Level::kWarning;
    finding.text = usable.error().message;
    finding.remedy = "each start packs the weights anew: mend it, or name another weight_cache";
    return finding;
}

// Those of UCX 1.13; a newer one may know more.
bool is_known_transport(std::string_view name) {
    constexpr std::array<std::string_view, 26> kKnown = {
        "all",  "sm",   "shm",      "mm",      "posix", "sysv", "xpmem",    "cma",     "knem",
        "self", "tcp",  "ib",       "ud",      "ud_v",  "ud_x", "ud_verbs", "ud_mlx5", "rc",
        "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc",    "dc_x", "dc_mlx5",  "rdmacm"};
    for (const std::string_view known : kKnown) {
        if (name == known) return true;
    }
    return false;
}

// Empty: all are known, or the list says what not to use.
std::string first_unknown(const std::string& list) {
    if (list.starts_with('^')) return "";
    const std::vector<std::string> names = comma_list(list);
    const auto unknown = std::ranges::find_if_not(names, is_known_transport);
    return unknown == names.end() ? "" : *unknown;
}

bool has_several(const std::string& devices) {
    return devices == "all" || devices.starts_with('^') || devices.find(',') != std::string::npos;
}

// A host that joins learns its address only when it has joined.
Result<UcxNetwork> network_of(const Config& config, const NetworkDevices& devices) {
    if (config.join.empty()) {
        AFD_ASSIGN(const std::string host, own_ucx_host(config));
        return choose_ucx_network(config, host, devices);
    }
    if (config.ucx_host != kUcxAuto) {
        AFD_ASSIGN(const JoinAddress leader, parse_join_address(config.join));
        const std::string seen_at = leader.is_name ? config.ucx_host : leader.host;
        AFD_ASSIGN(const std::string host, choose_ucx_host(config, seen_at));
        return choose_ucx_network(config, host, devices);
    }
    AFD_ASSIGN(UcxNetwork network, choose_ucx_network(config, "127.0.0.1", devices));
    network.host = "the address that reaches the leader";
    if (config.ucx_devices == kUcxAuto && network.devices != "all") {
        network.devices = "the device that has it";
    }
    return network;
}

Finding examine_network(const Config& config, const NetworkDevices& devices) {
    constexpr const char* kSubject = "network";
    Finding finding{kSubject, Finding::Level::kOk, "workers use shared memory", ""};
    if (config.transport != Transport::kUcx) return finding;
    const auto network = network_of(config, devices);
    if (!network.ok()) return failed(kSubject, network.error(), "afdd starts once it is right");
    finding.text = fmt::format("workers talk over UCX ({}{}) at {}",
                               config.ucx_transports,
                               config.join.empty() ? "" : " here; the leader's count",
                               network.value().text());
    const std::string unknown = first_unknown(config.ucx_transports);
    if (!unknown.empty()) {
        finding.level = Finding::Level::kWarning;
        finding.remedy =
            fmt::format("ucx_transports: UCX 1.13 knows no '{}'; ucx_info -d lists them", unknown);
    } else if (has_several(network.value().devices)) {
        finding.level = Finding::Level::kWarning;
        finding.remedy =
            "UCX opens a port in every worker on each of these devices, and whoever reaches one "
            "can end the worker: name the one of a closed network with ucx_devices";
    }
    return finding;
}

}  // namespace

Result<> check_cluster_files(const Config& config) {
    if (!has_cluster(config)) return {};
    AFD_TRY(ClusterIdentity::load(config.cluster_dir, own_host_name(config)));
    return {};
}

Result<> check_named_cache(const Config& config) {
    const WeightCacheChoice choice = choose_weight_cache(config);
    if (choice.is_default || choice.directory.empty()) return {};
    return check_cache(choice.directory);
}

std::vector<Finding> examine_surroundings(const Config& config,
                                          const NetworkDevices& devices,
                                          int64_t now_s,
                                          const CacheRoom& cache_room) {
    return {examine_runtime(config),
            examine_certificates(config, now_s),
            examine_cache(config, cache_room),
            examine_network(config, devices)};
}

}  // namespace afd::daemon
