// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/cluster_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

// The largest record of TLS: a read takes a whole one, so none stays inside the library, where
// no poll would see it.
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kKeptBytesMax = size_t{256} << 10;

struct SocketOption {
    int level;
    int name;
    int value;
};

// An idle peer that is gone is found by the probes, one that owes acknowledgements by the timeout.
constexpr std::array<SocketOption, 6> kSocketOptions = {{
    {IPPROTO_TCP, TCP_NODELAY, 1},
    {SOL_SOCKET, SO_KEEPALIVE, 1},
    {IPPROTO_TCP, TCP_KEEPIDLE, 4},
    {IPPROTO_TCP, TCP_KEEPINTVL, 2},
    {IPPROTO_TCP, TCP_KEEPCNT, 3},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, ClusterChannel::kGoneAfterMs},
}};

Result<> prepare_socket(int socket) {
    const int flags = ::fcntl(socket, F_GETFL);
    bool is_prepared = flags >= 0 && ::fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0;
    for (const SocketOption& option : kSocketOptions) {
        is_prepared =
            is_prepared &&
            ::setsockopt(socket, option.level, option.name, &option.value, sizeof(option.value)) ==
                0;
    }
    if (is_prepared) return {};
    return unavailable("the socket of a connection between hosts cannot be prepared: {}",
                       with(std::strerror(errno)));
}

// The library looks at errors that earlier calls left behind, of this connection or of another.
void forget_errors() {
    ERR_clear_error();
    errno = 0;
}

Error closed(bool is_established) {
    if (is_established) return unavailable("the peer closed the connection");
    return unavailable("the peer closed the connection during the handshake; its log says why");
}

// What is wrong with a certificate, and what mends it.
std::string complaint_of(long verify_result) {
    switch (verify_result) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return "certificate has expired; remove it where ca.key is, let `afdctl cluster init` "
                   "make a new one there, and look at the clocks of both hosts";
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return "certificate is not valid yet; do the clocks of both hosts agree?";
        case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
            return "certificate is signed by another CA; give both hosts files that `afdctl "
                   "cluster init` made in one directory";
        default:
            return fmt::format("certificate is not accepted: {}",
                               X509_verify_cert_error_string(verify_result));
    }
}

bool is_about_certificates(int alert) {
    switch (alert) {
        case SSL3_AD_NO_CERTIFICATE:
        case SSL_AD_BAD_CERTIFICATE:
        case SSL_AD_UNSUPPORTED_CERTIFICATE:
        case SSL_AD_CERTIFICATE_REVOKED:
        case SSL_AD_CERTIFICATE_EXPIRED:
        case SSL_AD_CERTIFICATE_UNKNOWN:
        case SSL_AD_UNKNOWN_CA:
        case SSL_AD_ACCESS_DENIED:
        case SSL_AD_DECRYPT_ERROR:
        case SSL_AD_CERTIFICATE_REQUIRED:
            return true;
        default:
            return false;
    }
}

// The peer ended the connection by an alert, which the library gives as `reason`, in such words as
// "tlsv1 alert unknown ca".
Error alert_failure(int alert, const std::string& reason) {
    const size_t start = reason.find("alert");
    const std::string name = start == std::string::npos ? reason : reason.substr(start);
    if (is_about_certificates(alert)) {
        return {Code::kPermissionDenied,
                fmt::format("the peer refused our certificate ({}); do both hosts have files of "
                            "one `afdctl cluster init`, and are their clocks right?",
                            name)};
    }
    return unavailable("the peer ended the connection ({}); its log says why", with(name));
}

}  // namespace

void ClusterChannel::FreeTls::operator()(ssl_st* tls) const {
    SSL_free(tls);
}

Result<ClusterChannel> ClusterChannel::make(UniqueFd socket,
                                            const ClusterIdentity& identity,
                                            bool connects) {
    AFD_TRY(prepare_socket(socket.get()));
    forget_errors();
    Tls tls(SSL_new(identity.settings()));
    if (tls == nullptr || SSL_set_fd(tls.get(), socket.get()) != 1) {
        return resource_exhausted("no memory for a connection to another host");
    }
    if (connects) {
        SSL_set_connect_state(tls.get());
    } else {
        SSL_set_accept_state(tls.get());
    }
    return ClusterChannel(std::move(socket), std::move(tls), connects);
}

Result<ClusterChannel> ClusterChannel::accept(UniqueFd socket, const ClusterIdentity& identity) {
    return make(std::move(socket), identity, false);
}

Result<ClusterChannel> ClusterChannel::connect(UniqueFd socket, const ClusterIdentity& identity) {
    return make(std::move(socket), identity, true);
}

const std::string& ClusterChannel::peer_name() const {
    AFD_ASSERT(is_established(), "the peer of socket %d is not known yet", fd());
    return peer_name_;
}

Result<> ClusterChannel::read(size_t bytes_max) {
    if (end_) return *end_;
    if (!is_established()) AFD_TRY(shake_hands());
    if (!is_established()) return {};
    return receive(bytes_max);
}

Result<> ClusterChannel::flush() {
    if (end_) return *end_;
    if (!is_established()) AFD_TRY(shake_hands());
    if (!is_established()) return {};
    tls_wants_write_ = false;
    Result<> outcome;
    while (queued_bytes() > 0) {
        forget_errors();
        size_t size = 0;
        const int status =
            SSL_write_ex(tls_.get(), queued_.data() + num_sent_, queued_bytes(), &size);
        if (status != 1) {
            outcome = wait_or_end(status);
            break;
        }
        num_sent_ += size;
    }
    drop_sent();
    // Why the peer went, a refusal perhaps, may still wait to be read.
    if (!outcome.ok() && outcome.error().code == Code::kUnavailable) AFD_TRY(receive(SIZE_MAX));
    return outcome;
}

Result<> ClusterChannel::shake_hands() {
    forget_errors();
    const int status = SSL_do_handshake(tls_.get());
    if (status != 1) return wait_or_end(status);
    tls_wants_write_ = false;
    const X509* certificate = SSL_get0_peer_certificate(tls_.get());
    AFD_ASSERT(certificate != nullptr && SSL_get_verify_result(tls_.get()) == X509_V_OK,
               "a handshake of socket %d ended without a verified certificate",
               fd());
    std::string name = host_of(certificate);
    if (name.empty()) {
        end_ = Error{Code::kPermissionDenied,
                     "the peer's certificate names no host; `afdctl cluster init` makes one that "
                     "does"};
        return *end_;
    }
    peer_name_ = std::move(name);
    return {};
}

Result<> ClusterChannel::receive(size_t bytes_max) {
    std::array<char, kRecordBytes> bytes;
    for (size_t num_taken = 0; num_taken < bytes_max || SSL_pending(tls_.get()) > 0;) {
        forget_errors();
        size_t size = 0;
        const int status = SSL_read_ex(tls_.get(), bytes.data(), bytes.size(), &size);
        if (status != 1) return wait_or_end(status);
        reader_.append({bytes.data(), size});
        num_taken += size;
    }
    return {};
}

// A long queue's memory does not stay for as long as the connection, and a queue that never empties
// does not grow for ever.
void ClusterChannel::drop_sent() {
    if (queued_bytes() == 0) {
        num_sent_ = 0;
        queued_.clear();
        if (queued_.capacity() > kKeptBytesMax) std::string().swap(queued_);
    } else if (num_sent_ > queued_.size() / 2) {
        queued_.erase(0, num_sent_);
        num_sent_ = 0;
    }
}

// After a call of the library that did not do its work: it waits for the socket, or all is over.
Result<> ClusterChannel::wait_or_end(int status) {
    const int system_error = errno;
    const int kind = SSL_get_error(tls_.get(), status);
    tls_wants_write_ = kind == SSL_ERROR_WANT_WRITE;
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return {};
    if (kind == SSL_ERROR_ZERO_RETURN || (kind == SSL_ERROR_SYSCALL && system_error == 0)) {
        end_ = closed(is_established());
    } else if (kind == SSL_ERROR_SYSCALL) {
        end_ = unavailable("the connection failed: {}", with(std::strerror(system_error)));
    } else {
        end_ = tls_failure();
    }
    return *end_;
}

Error ClusterChannel::tls_failure() const {
    const unsigned long error = ERR_peek_last_error();
    const char* words = ERR_reason_error_string(error);
    const std::string reason = words != nullptr ? words : "no reason given";
    const int code = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    const int alert = code - SSL_AD_REASON_OFFSET;
    if (alert >= 0 && alert <= 255) return alert_failure(alert, reason);
    switch (code) {
        case SSL_R_UNEXPECTED_EOF_WHILE_READING:
            return closed(is_established());
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            return {Code::kPermissionDenied,
                    "the peer's " + complaint_of(SSL_get_verify_result(tls_.get()))};
        case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
            return {Code::kPermissionDenied,
                    "the peer showed no certificate; only hosts that have one may join"};
        default:
            return data_loss(
                "what came from the peer is not TLS 1.3 between hosts of a cluster: "
                "{}; is it an afdd?",
                with(reason));
    }
}

}  // namespace afd::daemon
