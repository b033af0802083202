// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScriptedServer: answers HTTP requests on a port of its own with bytes that a test gives it. It
// looks at no request beyond its length. A thread for each connection.

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace afd::test {

struct ScriptedAnswer {
    std::string bytes;
    bool closes = false;  // The connection, behind the bytes.
};

class ScriptedServer {
  public:
    // What to answer to the `index`-th request since the start (0, 1, ...).
    using Script = std::function<ScriptedAnswer(size_t index)>;

    // kNothing: it answers once on each connection, to the first bytes that come.
    enum class Reads { kRequests, kNothing };

    explicit ScriptedServer(Script script, Reads reads = Reads::kRequests);
    // Closes every connection.
    ~ScriptedServer();
    ScriptedServer(const ScriptedServer&) = delete;
    ScriptedServer& operator=(const ScriptedServer&) = delete;

    uint16_t port() const { return port_; }
    size_t num_connections() const { return num_connections_; }

  private:
    void accept_all();
    void serve(int socket);

    const Script script_;
    const Reads reads_;
    int listener_ = -1;
    uint16_t port_ = 0;
    std::atomic<size_t> num_requests_{0};
    std::atomic<size_t> num_connections_{0};
    std::mutex mutex_;  // Guards what follows.
    std::vector<int> sockets_;
    std::list<std::thread> threads_;
    std::thread acceptor_;
};

}  // namespace afd::test
