// SPDX-License-Identifier: Apache-2.0
#pragma once

// LongPrompts: requests with a text that is too long to be tokenized on the loop, while the
// TextThread does it. Then they go on as if the client had sent the ids.
//
// A session has its input held meanwhile, so its requests keep their order, and what waits here is
// one request of each connection, which the InputBudget counts. HTTP sends ids: its bodies are read
// by the thread as a whole.

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "daemon/gateway/request/prompt.h"
#include "daemon/gateway/request/served_model.h"
#include "daemon/gateway/session/client_session.h"
#include "daemon/loop/background_thread.h"
#include "proto/client.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class LongPrompts {
  public:
    // What goes on: a request and the ids of its text, or why it cannot.
    using Next = std::function<void(
        ClientSession& client, client::Request& request, const std::vector<uint32_t>& ids)>;
    using Fail = std::function<void(
        ClientSession& client, const client::Request& request, const Error& error)>;

    // REQUIRES: what `model` points to outlives the object.
    LongPrompts(const ServedModel& model, Next next, Fail fail);
    ~LongPrompts();

    // Whether the text of a request is to be read by the thread.
    bool is_long(const client::Request& request) const;
    // REQUIRES: is_long(request). Its errors are those of prompt_of().
    void read(ClientSession& client, const client::Request& request, const TokenLimit& limit);

    // The request fails as cancelled once it is read.
    void cancel(const ClientSession& client, uint64_t request_id);
    // Those of a client that is gone.
    void forget(const ClientSession& client);

    bool empty() const { return readings_.empty(); }
    bool is_for(const ClientSession& client) const;

  private:
    struct Reading;
    using Place = std::list<Reading>::iterator;

    void on_read(Place place);

    const ServedModel model_;  // With the thread's tokenizer.
    const Next next_;
    const Fail fail_;
    std::list<Reading> readings_;
};

}  // namespace afd::daemon
