// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/private_key.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

namespace afd::client {

void PrivateKey::Free::operator()(evp_pkey_st* key) const {
    EVP_PKEY_free(key);
}

Result<PrivateKey> PrivateKey::generate() {
    PrivateKey key(EVP_EC_gen("P-256"));
    if (key.get() == nullptr) return afd::Error{Code::kInternal, "cannot make a key on P-256"};
    return key;
}

Result<PrivateKey> PrivateKey::parse(const std::string& pem) {
    BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    // An empty passphrase: without one the library would ask for it at the terminal.
    char no_passphrase[] = "";
    PrivateKey key(PEM_read_bio_PrivateKey(memory, nullptr, nullptr, no_passphrase));
    BIO_free(memory);
    if (key.get() == nullptr) {
        return afd::Error{Code::kDataLoss, "is no private key in PEM form without passphrase"};
    }
    return key;
}

std::string PrivateKey::pem() const {
    BIO* memory = BIO_new(BIO_s_mem());
    const int is_written =
        PEM_write_bio_PrivateKey(memory, get(), nullptr, nullptr, 0, nullptr, nullptr);
    AFD_ASSERT(is_written == 1, "a key cannot be written as PEM");
    char* text = nullptr;
    const long size = BIO_get_mem_data(memory, &text);
    std::string pem(text, static_cast<size_t>(size));
    BIO_free(memory);
    return pem;
}

}  // namespace afd::client
