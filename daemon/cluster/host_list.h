// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostList: the hosts that have joined the afdd that leads. It listens for them, judges whether
// they can run its workers and have room for them, and gives up those that are silent.
//
//   connects        TLS       Join              its connection ends, or it joins anew
//  ---------> guest ---> ... ------> joined --------------------------------------------> gone
//                                    or Refusal
//
// A host that joins anew from the same machine has lost its other connection, or was started again.
// From another machine, or after a reboot, it is refused as long as the first is there: until that
// has been silent for too long.
//
// It knows nothing of workers: when a host joins or leaves, the listener does what there is to do.

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cluster/certificate_watch.h"
#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_link.h"
#include "daemon/cluster/refusal_log.h"
#include "daemon/config/listen_address.h"
#include "daemon/loop/acceptor.h"
#include "daemon/loop/event_loop.h"
#include "proto/client.pb.h"
#include "proto/cluster.pb.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class HostListener {
  public:
    virtual ~HostListener() = default;
    // Its workers can be asked for, where find() says.
    virtual void on_host_joined(const std::string& name) = 0;
    // They cannot any more. Their stand-ins see the end of their own connections.
    virtual void on_host_left(const std::string& name) = 0;
};

class HostList {
  public:
    // Connections that have not joined, at most. The next one takes the place of the oldest that
    // has not shown a certificate: who connects and is silent keeps no host out.
    static constexpr size_t kGuestsMax = 64;

    struct Plan {
        std::string build;  // The leader's (Join.build).
        std::string model_identity;
        std::string weights_identity;  // Apart from what kv_dtype adds.
        std::string vocabulary_digest;
        std::string numeric_class;  // Its name: what every host must be able to run.
        // That the leader could run instead, and not slowly; oldest instructions first.
        std::vector<std::string> native_numeric_classes;
        // The hosts that are awaited, and what each hears when it joins.
        std::map<std::string, cluster::Joined> awaited;
        // Whether the workers of a host fit into what it says is available.
        // Errors: kResourceExhausted: they do not; says the numbers and what to change. REQUIRES:
        // it is set, if hosts say what is available.
        std::function<Result<>(const std::string& host, const cluster::Join& join)> check_room;
    };

    // REQUIRES: `loop` and `listener` outlive it.
    // Errors: kAlreadyExists: the port is taken. kPermissionDenied: may not, or no such address.
    static Result<std::unique_ptr<HostList>> open(EventLoop& loop,
                                                  ListenAddress address,
                                                  ClusterIdentity identity,
                                                  Plan plan,
                                                  HostListener& listener);
    ~HostList();

    // Of every byte of the leader's model. Until it is known, hosts are told to try again.
    void set_model_digest(std::string digest) { model_digest_ = std::move(digest); }
    // With the port that was given.
    const ListenAddress& address() const { return address_; }
    // Nothing: it has not joined.
    std::optional<control::RemoteHost> find(const std::string& name) const;
    // The hosts that are awaited and not there: "b and c".
    std::string missing_text() const;
    void fill_status(client::Status& status) const;
    // Reads the certificates again. Errors: those of ClusterIdentity::renew().
    Result<> renew_identity() { return identity_.renew(); }
    // The last that those who have joined hear: the leader ends in order.
    void say_over();

  private:
    struct Guest;

    HostList(EventLoop& loop, ClusterIdentity identity, Plan plan, HostListener& listener);
    void add(UniqueFd socket);
    bool make_room();
    void on_read(Guest& guest, const Result<>& outcome);
    Result<> take_messages(Guest& guest);
    Result<> join(Guest& guest, const cluster::Join& wanted);
    Result<> check(const std::string& name, const cluster::Join& wanted) const;
    void refuse(Guest& guest, const Error& why);
    void drop(Guest& guest, const std::string& why);
    void beat();
    Result<> check_build(const std::string& name, const cluster::Join& wanted) const;
    Result<> check_model(const std::string& name, const cluster::Join& wanted) const;
    Result<> check_vocabulary(const std::string& name, const cluster::Join& wanted) const;
    Result<> check_numeric_class(const std::string& name, const cluster::Join& wanted) const;
    Result<> check_bits(const std::string& name, const cluster::Join& wanted) const;
    Result<> make_way(const Guest& guest, const std::string& name, const cluster::Join& wanted);

    EventLoop& loop_;
    ClusterIdentity identity_;
    CertificateWatch certificate_watch_;
    const Plan plan_;
    std::string model_digest_;  // Empty: not known yet.
    HostListener& listener_;
    ListenAddress address_;
    std::list<Guest> guests_;  // Joined ones, too.
    std::map<std::string, Guest*> joined_;
    std::unique_ptr<Acceptor> acceptor_;
    Timer beat_timer_;
    RefusalLog refusals_;
};

}  // namespace afd::daemon
