// SPDX-License-Identifier: Apache-2.0
#pragma once

// RawTlsPeer: a peer of a channel that does what a channel would not: shows no certificate or a bad
// one, knows no CA, speaks an old version, sends parts of frames.

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <string>
#include <string_view>

#include "daemon/loop/unique_fd.h"
#include "proto/check.h"

namespace afd::daemon {

struct RawTlsOptions {
    bool connects = true;
    std::string certificate;  // Paths; empty: none is shown.
    std::string key;
    bool trusts_nobody = false;  // Else it takes every certificate.
    int version_max = TLS1_3_VERSION;
};

class RawTlsPeer {
  public:
    RawTlsPeer(UniqueFd socket, const RawTlsOptions& options)
        : socket_(std::move(socket)), settings_(SSL_CTX_new(TLS_method())) {
        ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
        SSL_CTX_set_max_proto_version(settings_, options.version_max);
        SSL_CTX_set_mode(settings_, SSL_MODE_ENABLE_PARTIAL_WRITE);
        if (!options.certificate.empty()) {
            const bool is_loaded =
                SSL_CTX_use_certificate_file(
                    settings_, options.certificate.c_str(), SSL_FILETYPE_PEM) == 1 &&
                SSL_CTX_use_PrivateKey_file(settings_, options.key.c_str(), SSL_FILETYPE_PEM) == 1;
            AFD_ASSERT(is_loaded, "cannot load %s", options.certificate.c_str());
        }
        const int asks = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
        SSL_CTX_set_verify(settings_, asks, options.trusts_nobody ? nullptr : accept_any);
        tls_ = SSL_new(settings_);
        SSL_set_fd(tls_, socket_.get());
        options.connects ? SSL_set_connect_state(tls_) : SSL_set_accept_state(tls_);
    }
    ~RawTlsPeer() {
        SSL_free(tls_);
        SSL_CTX_free(settings_);
    }
    RawTlsPeer(const RawTlsPeer&) = delete;
    RawTlsPeer& operator=(const RawTlsPeer&) = delete;

    // Carries the handshake on, or takes what has come; whatever becomes of it.
    void turn() {
        ERR_clear_error();
        if (!is_ready()) {
            SSL_do_handshake(tls_);
            return;
        }
        std::array<char, 16384> bytes;
        SSL_read(tls_, bytes.data(), static_cast<int>(bytes.size()));
    }
    bool is_ready() const { return SSL_is_init_finished(tls_) == 1; }

    void send(std::string_view bytes) {
        AFD_ASSERT(SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size())) ==
                       static_cast<int>(bytes.size()),
                   "the test's peer cannot send %zu bytes",
                   bytes.size());
    }
    // The end of the TLS stream; the socket stays open.
    void say_goodbye() { SSL_shutdown(tls_); }

  private:
    static int accept_any(int, X509_STORE_CTX*) { return 1; }

    UniqueFd socket_;
    SSL_CTX* settings_;
    SSL* tls_ = nullptr;
};

}  // namespace afd::daemon
