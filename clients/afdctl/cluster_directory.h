// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterDirectory: where the certificates of a cluster are made: ca.pem and ca.key of its CA, and
// NAME.pem and NAME.key of each host. What is there stays as it is.
//
// A key is there before its certificate. Where an interrupted run, or somebody's hand, left a key
// alone, it gets a certificate.

#include <cstdint>
#include <string>

#include "clients/afdctl/certificate.h"
#include "clients/afdctl/private_key.h"
#include "proto/status.h"

namespace afd::client {

class ClusterDirectory {
  public:
    static constexpr int64_t kAuthorityDays = 3653;  // Ten years.

    // Two files, NAME.pem and NAME.key.
    struct Entry {
        std::string name;
        bool is_new = false;  // Else they were there.
        int64_t until_s = 0;  // Seconds since 1970.
    };

    // Makes the directory, with mode 0700, and its CA where they are missing. Errors:
    // kInvalidArgument: no directory, or files that do not belong together. kPermissionDenied:
    // others may enter it, or the system refused. kFailedPrecondition: the CA has no key, or has
    // expired. kDataLoss: a file is not PEM.
    static Result<ClusterDirectory> open(const std::string& path);

    const Entry& authority() const { return entry_; }

    // A certificate lasts no longer than its CA's. REQUIRES: `name` is one of a host.
    // Errors: as of open().
    Result<Entry> add(const std::string& name, int64_t days) const;

  private:
    ClusterDirectory(std::string path, PrivateKey key, Certificate certificate, bool is_new);

    std::string path_;
    PrivateKey key_;
    Certificate certificate_;
    Entry entry_;
};

}  // namespace afd::client
