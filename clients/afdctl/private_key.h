// SPDX-License-Identifier: Apache-2.0
#pragma once

// PrivateKey: the key of a certificate (certificate.h), on the curve P-256; as text, PEM.

#include <memory>
#include <string>

#include "proto/status.h"

struct evp_pkey_st;

namespace afd::client {

class PrivateKey {
  public:
    // Errors: kInternal: the library cannot make one.
    static Result<PrivateKey> generate();
    // Errors: kDataLoss: `pem` is no key, or one with a passphrase.
    static Result<PrivateKey> parse(const std::string& pem);

    std::string pem() const;
    evp_pkey_st* get() const { return key_.get(); }

  private:
    struct Free {
        void operator()(evp_pkey_st* key) const;
    };

    explicit PrivateKey(evp_pkey_st* key) : key_(key) {}

    std::unique_ptr<evp_pkey_st, Free> key_;
};

}  // namespace afd::client
