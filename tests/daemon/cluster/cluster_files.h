// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterFiles: a directory of certificates, made by the real afdctl, and certificates of its CA
// that afdctl would not make.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "clients/afdctl/certificate.h"
#include "daemon/cluster/cluster_identity.h"
#include "tests/clients/program.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {

inline afd::test::ProgramResult cluster_init(const std::string& directory,
                                             std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {AFDCTL, "cluster", "init", directory});
    return afd::test::run_program(arguments);
}

inline std::string bytes_of(const std::string& path) {
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
}

class ClusterFiles {
  public:
    static constexpr int64_t kDay = 86'400;

    explicit ClusterFiles(const std::vector<std::string>& hosts = {"node1"}) {
        std::vector<std::string> arguments;
        for (const std::string& host : hosts) arguments.insert(arguments.end(), {"--host", host});
        const afd::test::ProgramResult made = cluster_init(path(), arguments);
        EXPECT_EQ(made.exit_code, 0) << made.err;
    }

    std::string path() const { return directory_.path("certs"); }
    std::string path(const std::string& name) const { return path() + "/" + name; }

    void write(const std::string& name, const std::string& bytes, mode_t mode = 0600) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        ::chmod(path(name).c_str(), mode);
    }
    void remove(const std::string& name) const { std::filesystem::remove(path(name)); }
    void copy(const std::string& from, const std::string& to) const {
        write(to, bytes_of(path(from)));
    }

    // FILE.pem and FILE.key for the host `name`, valid for these days from today.
    void issue(const std::string& file,
               const std::string& name,
               int64_t first_day,
               int64_t last_day) const {
        auto ca = client::Certificate::parse(bytes_of(path("ca.pem")));
        auto ca_key = client::PrivateKey::parse(bytes_of(path("ca.key")));
        auto key = client::PrivateKey::generate();
        ASSERT_TRUE(ca.ok() && ca_key.ok() && key.ok());
        const int64_t now = std::time(nullptr);
        auto made = client::Certificate::of_host(name,
                                                 key.value(),
                                                 {now + first_day * kDay, now + last_day * kDay},
                                                 ca.value(),
                                                 ca_key.value());
        ASSERT_TRUE(made.ok()) << made.error().message;
        write(file + ".pem", made.value().pem());
        write(file + ".key", key.value().pem());
    }

    Result<ClusterIdentity> load(const std::string& name) const {
        return ClusterIdentity::load(path(), name);
    }
    ClusterIdentity identity(const std::string& name) const {
        Result<ClusterIdentity> loaded = load(name);
        AFD_ASSERT(loaded.ok(), "%s", loaded.error().message.c_str());
        return std::move(loaded).value();
    }

  private:
    afd::test::TemporaryDirectory directory_;
};

}  // namespace afd::daemon
