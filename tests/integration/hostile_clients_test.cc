// SPDX-License-Identifier: Apache-2.0
//
// Goal: what one client does harms nobody else: thousands of requests, half-sent ones, and as many
// connections as it can get. Method: a real afdd, and clients over its socket that do so and go on
// doing so. Oracle: another client is served meanwhile, a worker can be started again, and the
// greedy ones are told why they are refused.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>

#include "proto/frame.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

client::Generate small_request() {
    client::Generate request;
    request.set_text("Once upon a time");
    request.set_max_tokens(3);
    return request;
}

// Sends as much as the other side takes; false: it has closed the connection.
bool send_all(const client::Connection& connection, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
        const ssize_t n =
            ::send(connection.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += static_cast<size_t>(n);
        } else if (errno == EAGAIN) {
            pollfd item{connection.fd(), POLLOUT, 0};
            EXPECT_EQ(poll(&item, 1, 60'000), 1) << "afdd does not read";
        } else {
            return false;
        }
    }
    return true;
}

// Why afdd closed the connection; empty: it has not.
std::string refusal_of(client::Connection& connection) {
    std::vector<client::Response> ignored;
    const Result<> received = connection.receive(ignored);
    return received.ok() ? "" : received.error().message;
}

TEST(HostileClients, ManyRequestsOfOneKeepNobodyOut) {
    Instance instance;
    instance.wait_ready();
    client::Connection greedy = instance.open_connection();
    std::string bytes;
    for (uint64_t id = 1; id <= 5000; ++id) {
        client::Request request;
        request.set_request_id(id);
        *request.mutable_generate() = small_request();
        request.mutable_generate()->set_max_tokens(400);
        request.mutable_generate()->set_ignore_eos(true);
        append_frame(request, bytes);
    }
    ASSERT_TRUE(send_all(greedy, bytes));
    instance.wait_for("its requests wait",
                      [](const client::Status& status) { return status.num_queued() > 300; });
    const auto served = instance.connect().generate(small_request());
    EXPECT_TRUE(served.ok()) << served.error().message;
    EXPECT_GT(instance.status().num_queued(), 0U) << "the greedy client had ended: nothing shown";
    bool is_told = false;
    wait_until("the greedy client is told why it is refused", [&] {
        std::vector<client::Response> responses;
        EXPECT_TRUE(greedy.receive(responses).ok());
        for (const client::Response& response : responses) {
            is_told |= response.error().message().find("of this connection") != std::string::npos;
        }
        return is_told;
    });
}

TEST(HostileClients, HalfRequestsFillNoMemoryAndEnd) {
    Instance instance({"--input-buffer-kib", "20480", "--input-timeout-ms", "30000"});
    instance.wait_ready();
    // Announces 16 MiB and sends half of it.
    const std::string half = std::string("\0\0\0\1", 4) + std::string(size_t{8} << 20, 'x');
    std::vector<client::Connection> connections;
    for (int i = 0; i < 12; ++i) {
        connections.push_back(instance.open_connection());
        send_all(connections.back(), half);
    }
    const auto served = instance.connect().generate(small_request());
    EXPECT_TRUE(served.ok()) << served.error().message;
    size_t num_for_memory = 0;
    size_t num_for_time = 0;
    for (client::Connection& connection : connections) {
        std::string why;
        wait_until("the connection is closed", [&] {
            why = refusal_of(connection);
            return !why.empty();
        });
        num_for_memory += why.find("(input_buffer_kib)") != std::string::npos;
        num_for_time += why.find("input_timeout_ms = 30000") != std::string::npos;
    }
    // Two halves of 8 MiB fit into 20 MiB.
    EXPECT_EQ(num_for_memory + num_for_time, connections.size());
    EXPECT_GE(num_for_memory, connections.size() - 2);
    EXPECT_TRUE(instance.connect().generate(small_request()).ok());
}

TEST(HostileClients, AllDescriptorsKeepNoWorkerFromStartingAgain) {
    Instance instance({"--idle-timeout-ms", "3600000"}, "ulimit -n 160");
    instance.wait_ready();
    client::Client watcher = instance.connect();
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    std::vector<client::Connection> connections;
    for (int i = 0; i < 200; ++i) connections.push_back(instance.open_connection());
    wait_until("the last one is refused with the reason", [&] {
        return refusal_of(connections.back()).find("the limit of open files") != std::string::npos;
    });
    kill(ffn, SIGKILL);
    wait_until("the worker is back", [&] {
        const auto status = watcher.status();
        EXPECT_TRUE(status.ok()) << status.error().message;
        for (const client::Worker& worker : status.value().workers()) {
            if (worker.role() != "ffn") continue;
            return worker.state() == "ready" && worker.pid() != static_cast<uint32_t>(ffn);
        }
        return false;
    });
    const auto served = watcher.generate(small_request());
    EXPECT_TRUE(served.ok()) << served.error().message;
    const std::string log = instance.log();
    EXPECT_NE(log.find("closed the connection of client pid"), std::string::npos) << log;
    EXPECT_NE(log.find("raise the limit of open files (ulimit -n)"), std::string::npos) << log;
}

}  // namespace
}  // namespace afd::test
