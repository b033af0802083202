// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/cluster_directory.h"
#include "clients/afdctl/command.h"
#include "clients/exit_code.h"
#include "proto/host_name.h"

namespace afd::client {
namespace {

using Entry = ClusterDirectory::Entry;

Result<> check_hosts(const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) {
        if (host == kLeaderName || host == kLocalHost) {
            return afd::Error{Code::kInvalidArgument,
                              fmt::format("--host {}: that is the host of the afdd that leads, "
                                          "whose files are made anyway; give another name",
                                          host)};
        }
        if (const Result<> checked = check_host_name(host); !checked.ok()) {
            return afd::Error{checked.error().code, "--host " + checked.error().message};
        }
    }
    return {};
}

// So that the paths that are printed have one slash.
std::string without_slash(std::string directory) {
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    return directory;
}

std::string date_of(int64_t seconds) {
    const time_t time = seconds;
    tm parts{};
    ::gmtime_r(&time, &parts);
    return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

void print_entry(const std::string& directory, const Entry& entry) {
    const std::string until = date_of(entry.until_s);
    const bool is_over = entry.until_s <= std::time(nullptr);
    std::cout << fmt::format("{} {}/{}.pem and {}.key, valid until {}{}\n",
                             entry.is_new ? "made" : "kept",
                             directory,
                             entry.name,
                             entry.name,
                             until,
                             is_over ? ": over; remove the .pem and run this again" : "");
}

void print_copies(const std::string& directory, const std::vector<Entry>& hosts) {
    if (hosts.size() > 1) {
        std::cout << "\nCopy to each host, into a directory that only its owner may enter:\n";
    }
    for (const Entry& host : hosts) {
        if (host.name == kLeaderName) continue;
        std::cout << fmt::format(
            "  {0}: {1}/ca.pem {1}/{0}.pem {1}/{0}.key\n", host.name, directory);
    }
    std::cout << fmt::format(
        "\n{}/ca.key stays here and goes to no host: who has it can let anybody join.\n",
        directory);
}

nlohmann::ordered_json entry_json(const Entry& entry) {
    return {{"name", entry.name},
            {"is_new", entry.is_new},
            {"valid_until", date_of(entry.until_s)},
            {"files", {"ca.pem", entry.name + ".pem", entry.name + ".key"}}};
}

void print_json(const std::string& directory, const Entry& ca, const std::vector<Entry>& hosts) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Entry& host : hosts) list.push_back(entry_json(host));
    const nlohmann::ordered_json object = {
        {"directory", directory},
        {"ca", {{"is_new", ca.is_new}, {"valid_until", date_of(ca.until_s)}}},
        {"hosts", list}};
    std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

// What a run of it asks for, once each: the leader's certificate, and the hosts'.
std::vector<std::string> names_of(const ClusterOptions& options) {
    std::vector<std::string> names = {std::string(kLeaderName)};
    for (const std::string& host : options.hosts) {
        if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
    }
    return names;
}

}  // namespace

// Each line is printed when its files are there, so that a failure shows how far it went.
int run_cluster_init(const CommonOptions& common, const ClusterOptions& options) {
    if (const Result<> checked = check_hosts(options.hosts); !checked.ok()) {
        return report_failure(common, checked.error(), false);
    }
    const std::string path = without_slash(options.directory);
    const Result<ClusterDirectory> directory = ClusterDirectory::open(path);
    if (!directory.ok()) return report_failure(common, directory.error(), true);
    const Entry& ca = directory.value().authority();
    if (!common.json) print_entry(path, ca);
    std::vector<Entry> hosts;
    for (const std::string& name : names_of(options)) {
        Result<Entry> host = directory.value().add(name, options.days);
        if (!host.ok()) return report_failure(common, host.error(), true);
        hosts.push_back(std::move(host).value());
        if (!common.json) print_entry(path, hosts.back());
    }
    if (common.json) {
        print_json(path, ca, hosts);
    } else {
        print_copies(path, hosts);
    }
    return kExitOk;
}

}  // namespace afd::client
