// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterIdentity: who this host is among the hosts of a cluster. Three files of one directory,
// which `afdctl cluster init` makes: ca.pem (whose certificates are accepted), NAME.pem (the own
// certificate) and NAME.key (its key).
//
// A certificate is for the host that its subject names as CN. Both ends of a connection show one of
// the same CA; TLS 1.3 only, and no session is resumed. Files that change are read at the next
// renew(). A channel (cluster_channel.h) may outlive the identity that it was made with.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "proto/status.h"

// The library's names; only sources read its headers.
struct ssl_ctx_st;
struct x509_st;

namespace afd::daemon {

// The host that a certificate is for, by a name as proto/host_name.h wants it; empty: for none, or
// for several.
std::string host_of(const x509_st* certificate);

class ClusterIdentity {
  public:
    // Errors: kInvalidArgument: no such name, or the files do not belong together. kNotFound: a
    // file is missing. kPermissionDenied: a file cannot be read, or others can read the key.
    // kDataLoss: a file is not PEM. kFailedPrecondition: a certificate is not valid today.
    static Result<ClusterIdentity> load(const std::string& directory, const std::string& name);

    // Reads the files again; connections that begin from now on use them.
    // Errors: those of load(); what was read before stays in use.
    Result<> renew();

    const std::string& name() const { return name_; }
    // When the own certificate expires, or that of the CA if that is sooner: Unix time.
    int64_t expires_s() const { return expires_s_; }
    // What there is to say of it at `now_s`; empty: that is more than kWarnDays away.
    static constexpr int64_t kWarnDays = 30;
    std::string expiry_text(int64_t now_s) const;

    // What the connections of this host have in common, for both of their ends.
    ssl_ctx_st* settings() const { return settings_.get(); }

  private:
    struct FreeSettings {
        void operator()(ssl_ctx_st* settings) const;
    };
    using Settings = std::unique_ptr<ssl_ctx_st, FreeSettings>;

    ClusterIdentity(std::string directory, std::string name, Settings settings)
        : directory_(std::move(directory)),
          name_(std::move(name)),
          settings_(std::move(settings)) {}

    std::string directory_;
    std::string name_;
    Settings settings_;
    int64_t expires_s_ = 0;
    std::string expires_file_;
    std::string expires_how_;  // When, and what to do.
};

}  // namespace afd::daemon
