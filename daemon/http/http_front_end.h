// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpFrontEnd: the door for everybody who speaks HTTP/1.1: the OpenAI API, probes and scrapers.

#include <memory>
#include <string>
#include <string_view>

#include "daemon/config/listen_address.h"
#include "daemon/gateway/session/client_session.h"
#include "daemon/gateway/session/front_end.h"
#include "daemon/http/http_services.h"
#include "daemon/loop/acceptor.h"

namespace afd::daemon {

class HttpSession;

class HttpFrontEnd final : public FrontEnd {
  public:
    // `services.is_loopback` is set here, by the address. `listening`: of another afdd that served
    // this address; none: it is bound.
    // REQUIRES: `loop` and `owner` outlive the object.
    // Errors: as listen_tcp().
    static Result<std::unique_ptr<FrontEnd>> open(EventLoop& loop,
                                                  ListenAddress address,
                                                  SessionOwner& owner,
                                                  std::shared_ptr<HttpServices> services,
                                                  UniqueFd listening = {});
    // FrontEnd::address() of that address.
    static std::string address_of(const ListenAddress& address) {
        return "http://" + address.text();
    }

    static Result<ListenAddress> parse_address(const std::string& text) {
        const std::string scheme = "http://";
        return parse_listen_address(text.starts_with(scheme) ? text.substr(scheme.size()) : text);
    }

    std::string_view kind() const override { return kHttpDoor; }
    std::string address() const override { return address_of(address_); }
    int listening_socket() const override { return acceptor_.fd(); }
    void pause() override { acceptor_.pause(); }
    void go_on() override { acceptor_.go_on(); }
    void leave() override {}
    void adopt(HandedConnection connection) override;

  private:
    HttpFrontEnd(EventLoop& loop,
                 UniqueFd listening,
                 const ListenAddress& address,
                 SessionOwner& owner,
                 std::shared_ptr<HttpServices> services);
    std::unique_ptr<HttpSession> session_of(UniqueFd socket);

    EventLoop& loop_;
    SessionOwner& owner_;
    const std::shared_ptr<HttpServices> services_;
    const ListenAddress address_;
    Acceptor acceptor_;
};

}  // namespace afd::daemon
