// SPDX-License-Identifier: Apache-2.0
#include "daemon/slurm/slurm_job.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>

#include "daemon/config/listen_address.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"
#include "proto/host_name.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

constexpr const char* kHowTo = "start it with 'srun --ntasks-per-node=1 afdd --slurm --model DIR'";

constexpr int kAnswerSeconds = 60;
constexpr int kTimedOut = 124;  // What timeout(1) says then.

using Variables = std::map<std::string, std::string>;

Result<std::string> variable(const Variables& environment, const std::string& name) {
    const auto found = environment.find(name);
    if (found != environment.end() && !found->second.empty()) return found->second;
    return failed_precondition("--slurm: {} is not set, so this is no task of a Slurm job; {}",
                               with(name, kHowTo));
}

Result<uint32_t> number(const Variables& environment, const std::string& name) {
    AFD_ASSIGN(const std::string text, variable(environment, name));
    const auto value = whole_number(text);
    if (value && *value <= UINT32_MAX) return static_cast<uint32_t>(*value);
    return failed_precondition("--slurm: {} = '{}' is no number", with(name, text));
}

Result<std::vector<std::string>> nodes_of(const std::string& list, const AskSlurm& ask) {
    AFD_ASSIGN(const std::string output, ask({"show", "hostnames", list}));
    std::istringstream lines(output);
    std::vector<std::string> nodes;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        nodes.push_back(host_name_from(line));
        AFD_TRY(check_host_name(nodes.back()));
    }
    if (nodes.empty()) return unavailable("--slurm: scontrol knows no node of '{}'", with(list));
    return nodes;
}

// One of what NodeAddr means. A node's own name is often a loopback address to itself (127.0.1.1 in
// Debian's /etc/hosts), at which nobody else finds it; a number means what it says.
Result<std::string> choose_address(const std::string& node,
                                   const std::string& node_addr,
                                   const std::vector<SocketAddress>& addresses) {
    std::vector<ListenAddress> usable;
    for (const SocketAddress& address : addresses) {
        const ListenAddress listen = listen_address_of(address);
        if (!listen.is_loopback() || listen.host == node_addr) usable.push_back(listen);
    }
    if (usable.empty()) {
        return failed_precondition(
            "--slurm: '{}', the NodeAddr of node '{}', is {} here, at which no other node finds "
            "it: name an address there in slurm.conf, or give the name its own in /etc/hosts",
            with(node_addr, node, listen_address_of(addresses.front()).host));
    }
    // IPv4 where there is both: more networks route it.
    const auto v4 =
        std::ranges::find_if(usable, [](const ListenAddress& address) { return !address.is_ipv6; });
    return v4 != usable.end() ? v4->host : usable.front().host;
}

// "NodeName=n1 ... NodeAddr=10.0.0.1 ...": what Slurm itself reaches the node by, often a name.
Result<std::string> address_of(const std::string& node, const AskSlurm& ask) {
    constexpr std::string_view kKey = "NodeAddr=";
    AFD_ASSIGN(const std::string output, ask({"--oneliner", "show", "node", node}));
    std::istringstream words(output);
    for (std::string word; words >> word;) {
        if (!word.starts_with(kKey)) continue;
        const std::string node_addr = word.substr(kKey.size());
        AFD_ASSIGN(const auto addresses, addresses_of(node_addr, 0));
        return choose_address(node, node_addr, addresses);
    }
    return unavailable("--slurm: scontrol does not say the address of node '{}'", with(node));
}

std::string local_and(const std::vector<std::string>& nodes) {
    std::string list(kLocalHost);
    for (size_t i = 1; i < nodes.size(); ++i) list += "," + nodes[i];
    return list;
}

// For a shell: in quotes, in which nothing has a meaning but the quote.
std::string quoted(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

std::string all_text(std::FILE* file) {
    std::string text;
    std::array<char, 4096> part{};
    for (size_t size = 0; (size = std::fread(part.data(), 1, part.size(), file)) > 0;) {
        text.append(part.data(), size);
    }
    return text;
}

}  // namespace

std::map<std::string, std::string> SlurmJob::options() const {
    const std::string instance = "job" + std::to_string(id);
    if (nodes.size() == 1) return {{"instance", instance}};
    ListenAddress address;
    address.host = leader_address;
    address.is_ipv6 = leader_address.find(':') != std::string::npos;
    address.port = port();
    if (!leads()) {
        return {{"instance", instance + "_" + std::to_string(own)},
                {"transport", "ucx"},
                {"join", address.text()},
                {"host_name", nodes[own]},
                {"leave_with_leader", "true"}};
    }
    const std::string num_nodes = std::to_string(nodes.size());
    return {{"instance", instance},
            {"transport", "ucx"},
            {"ucx_host", leader_address},
            {"cluster_listen", address.text()},
            {"attention_workers", num_nodes},
            {"attention_hosts", local_and(nodes)},
            {"ffn_workers", num_nodes},
            {"ffn_hosts", local_and(nodes)}};
}

Result<SlurmJob> read_slurm_job(const std::map<std::string, std::string>& environment,
                                const AskSlurm& ask) {
    SlurmJob job;
    AFD_ASSIGN(const std::string list, variable(environment, "SLURM_STEP_NODELIST"));
    AFD_ASSIGN(job.id, number(environment, "SLURM_JOB_ID"));
    AFD_ASSIGN(const uint32_t num_tasks, number(environment, "SLURM_STEP_NUM_TASKS"));
    AFD_ASSIGN(const std::string own_node, variable(environment, "SLURMD_NODENAME"));
    AFD_ASSIGN(job.nodes, nodes_of(list, ask));
    if (num_tasks != job.nodes.size()) {
        return failed_precondition("--slurm: {} tasks on {} nodes, and one afdd runs on each; {}",
                                   with(num_tasks, job.nodes.size(), kHowTo));
    }
    const auto own = std::ranges::find(job.nodes, host_name_from(own_node));
    if (own == job.nodes.end()) {
        return failed_precondition("--slurm: node '{}' (SLURMD_NODENAME) is none of '{}'",
                                   with(own_node, list));
    }
    job.own = static_cast<size_t>(own - job.nodes.begin());
    if (job.nodes.size() > 1) {
        AFD_ASSIGN(job.leader_address, address_of(job.nodes.front(), ask));
    }
    return job;
}

Result<std::string> ask_scontrol(const std::vector<std::string>& arguments) {
    // It asks slurmctld, which may be anywhere.
    std::string command = "timeout " + std::to_string(kAnswerSeconds) + " scontrol";
    for (const std::string& argument : arguments) command += " " + quoted(argument);
    // Apart from the answer, of which a warning would become a part. The shell has to see it.
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors(
        ::fdopen(::memfd_create("afd-scontrol", 0), "r"), std::fclose);
    if (!errors) return unavailable("--slurm: cannot run {}: no memory file", with(command));
    const std::string redirected =
        command + " 2>/proc/self/fd/" + std::to_string(::fileno(errors.get()));
    std::FILE* pipe = ::popen(redirected.c_str(), "re");
    if (pipe == nullptr) return unavailable("--slurm: cannot run {}", with(command));
    const std::string output = all_text(pipe);
    const int status = ::pclose(pipe);
    std::string said = all_text(errors.get());
    while (said.ends_with('\n')) said.pop_back();
    if (status == 0) {
        // There is no log yet.
        if (!said.empty()) std::fprintf(stderr, "afdd: --slurm: scontrol: %s\n", said.c_str());
        return output;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kTimedOut) {
        return unavailable("--slurm: no answer within {} s: {}", with(kAnswerSeconds, command));
    }
    return unavailable("--slurm: {}: {}", with(command, said.substr(0, said.find('\n'))));
}

}  // namespace afd::daemon
