// SPDX-License-Identifier: Apache-2.0
#pragma once

// Certificate: X.509v3, of the CA of a cluster or of one of its hosts; as text, PEM. The CA signs
// hosts and nothing else; a host's says its name as CN, and serves both ends of a connection.

#include <cstdint>
#include <memory>
#include <string>

#include "clients/afdctl/private_key.h"
#include "proto/status.h"

struct x509_st;

namespace afd::client {

// Seconds since 1970.
struct Validity {
    int64_t from_s = 0;
    int64_t until_s = 0;
};

class Certificate {
  public:
    // The CA's own. Errors: kInternal: the library cannot make one, here and below.
    static Result<Certificate> of_authority(const PrivateKey& key, Validity validity);
    // For the host `name`, which has `key`; signed by the CA.
    static Result<Certificate> of_host(const std::string& name,
                                       const PrivateKey& key,
                                       Validity validity,
                                       const Certificate& authority,
                                       const PrivateKey& authority_key);
    // Errors: kDataLoss: `pem` is no certificate.
    static Result<Certificate> parse(const std::string& pem);

    std::string pem() const;
    Validity validity() const;
    std::string name() const;  // Its CN; empty: it has none.
    bool is_of(const PrivateKey& key) const;
    // Whenever it is valid.
    bool is_signed_by(const Certificate& authority) const;

  private:
    struct Free {
        void operator()(x509_st* certificate) const;
    };

    explicit Certificate(x509_st* certificate) : certificate_(certificate) {}

    // With all that both kinds have: a random serial number, version, dates, CN and key.
    static Result<Certificate> draft(const std::string& name,
                                     const PrivateKey& key,
                                     Validity validity);
    bool add_extension(const Certificate& issuer, int kind, const char* value);
    Result<> sign(const Certificate& issuer, const PrivateKey& key);

    std::unique_ptr<x509_st, Free> certificate_;
};

}  // namespace afd::client
