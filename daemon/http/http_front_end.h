// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpFrontEnd: the door for everybody who speaks HTTP/1.1: the OpenAI API, probes and scrapers.

#include <memory>
#include <string>

#include "daemon/config/listen_address.h"
#include "daemon/gateway/client_session.h"
#include "daemon/gateway/front_end.h"
#include "daemon/http/http_services.h"
#include "daemon/loop/acceptor.h"

namespace afd::daemon {

class HttpFrontEnd final : public FrontEnd {
  public:
    // `services.is_loopback` is set here, by the address.
    // REQUIRES: `loop` and `host` outlive the object.
    // Errors: as listen_tcp().
    static Result<std::unique_ptr<FrontEnd>> open(EventLoop& loop,
                                                  ListenAddress address,
                                                  SessionHost& host,
                                                  std::shared_ptr<HttpServices> services);

    std::string address() const override { return "http://" + address_.text(); }

  private:
    HttpFrontEnd(EventLoop& loop,
                 UniqueFd listening,
                 const ListenAddress& address,
                 SessionHost& host,
                 std::shared_ptr<HttpServices> services);

    const ListenAddress address_;
    Acceptor acceptor_;
};

}  // namespace afd::daemon
