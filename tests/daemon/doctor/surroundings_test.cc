// SPDX-License-Identifier: Apache-2.0
//
// Goal: what the doctor says of files and network is what afdd would say at its start. Method: the
// files of the real afdctl, and devices of the test's own. Oracle: level, words and exit code.
#include "daemon/doctor/surroundings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "daemon/placement/ucx_host.h"
#include "tests/daemon/cluster/cluster_files.h"
#include "tests/daemon/scoped_variable.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using Level = Finding::Level;

const NetworkDevices kTestDevices = {{"lo", {"127.0.0.1"}}, {"eth0", {"10.0.0.2"}}};

Config local_config() {
    Config config;
    config.instance = "demo";
    return config;
}

Config config_of_host(const std::string& directory) {
    Config config = local_config();
    config.join = "10.0.0.1:7411";
    config.transport = Transport::kUcx;
    config.ucx_transports = "tcp";
    config.ucx_host = config.ucx_devices = kUcxAuto;
    config.cluster_dir = directory;
    config.host_name = "node1";
    config.weight_cache = "off";
    return config;
}

Finding finding_of(const Config& config, const std::string& subject, int64_t days_from_now = 0) {
    const int64_t now_s = std::time(nullptr) + days_from_now * ClusterFiles::kDay;
    for (const Finding& finding : examine_surroundings(config, kTestDevices, now_s)) {
        if (finding.subject == subject) return finding;
    }
    ADD_FAILURE() << "no finding of " << subject;
    return {};
}

TEST(Surroundings, OfAnInstanceOnOneHostAreInOrder) {
    const afd::test::TemporaryDirectory directory;
    const ScopedVariable runtime("XDG_RUNTIME_DIR", directory.path().c_str());
    Config config = local_config();
    config.weight_cache = "off";
    for (const char* subject : {"runtime", "certificates", "cache", "network"}) {
        const Finding finding = finding_of(config, subject);
        EXPECT_EQ(finding.level, Level::kOk) << finding.text;
        EXPECT_EQ(finding.remedy, "");
    }
    EXPECT_TRUE(check_cluster_files(config).ok());
}

TEST(Surroundings, CertificatesAreThereAndForHowLong) {
    const ClusterFiles files;
    const Config config = config_of_host(files.path());
    EXPECT_TRUE(check_cluster_files(config).ok());
    const Finding good = finding_of(config, "certificates");
    EXPECT_EQ(good.level, Level::kOk);
    EXPECT_THAT(good.text, HasSubstr("of host 'node1', for 82"));
    const Finding late = finding_of(config, "certificates", 820);
    EXPECT_EQ(late.level, Level::kWarning);
    EXPECT_THAT(late.remedy, HasSubstr("node1.pem: this certificate expires within "));
}

TEST(Surroundings, MissingCertificatesEndAfddAsAWrongOption) {
    Config config = config_of_host("/nonexistent");
    const Finding finding = finding_of(config, "certificates");
    EXPECT_EQ(finding.level, Level::kFailed);
    EXPECT_EQ(finding.exit_code, ExitCode::kUsage);
    EXPECT_THAT(finding.text, HasSubstr("/nonexistent/ca.pem: no such file"));
    EXPECT_FALSE(check_cluster_files(config).ok());
    // The afdd that leads has those of 'leader'.
    const ClusterFiles files;
    files.remove("leader.key");
    config.join.clear();
    config.ffn_hosts = "node1";
    config.cluster_listen = "10.0.0.2:7411";
    config.cluster_dir = files.path();
    EXPECT_THAT(finding_of(config, "certificates").text, HasSubstr("leader.key: no such file"));
}

// Oracle: each way in which InstanceSetup::take_instance() or the client socket's bind would fail.
TEST(Surroundings, ARuntimeDirectoryThatAStartRefusesIsFound) {
    const afd::test::TemporaryDirectory directory;
    Config config = local_config();
    const auto expect_failed = [&config](const char* words) {
        const Finding finding = finding_of(config, "runtime");
        EXPECT_EQ(finding.level, Level::kFailed);
        EXPECT_EQ(finding.exit_code, ExitCode::kUsage);
        EXPECT_THAT(finding.text, HasSubstr(words));
        EXPECT_THAT(finding.remedy, HasSubstr("XDG_RUNTIME_DIR"));
    };
    {
        const ScopedVariable missing("XDG_RUNTIME_DIR", directory.path("missing").c_str());
        expect_failed("/missing/afd' cannot be made: ");
    }
    {
        const std::string longest = directory.path(std::string(100, 'd'));
        const ScopedVariable long_path("XDG_RUNTIME_DIR", longest.c_str());
        expect_failed("the kernel takes at most ");
    }
    const ScopedVariable runtime("XDG_RUNTIME_DIR", directory.path().c_str());
    const std::string own = directory.path("afd");
    // Also where it is to hold the clients' socket.
    for (const std::string& socket : {std::string(), own + "/a.sock"}) {
        config.socket = socket;
        EXPECT_EQ(finding_of(config, "runtime").text, own + ", which is made at the start");
    }
    config.socket.clear();
    EXPECT_FALSE(std::filesystem::exists(own)) << "the doctor creates nothing";
    ASSERT_EQ(::mkdir(own.c_str(), 0700), 0);
    EXPECT_EQ(finding_of(config, "runtime").text, own);
    config.socket = directory.path("missing/a.sock");
    expect_failed("/missing/a.sock' cannot be made: ");
    config.socket.clear();
    ::chmod(own.c_str(), 0755);
    expect_failed("must belong to this user with mode 0700");
}

// Method: below a file, where nobody makes a directory, root neither.
TEST(Surroundings, ACacheThatCannotBeMadeIsRefusedOnlyWhereItIsNamed) {
    const afd::test::TemporaryDirectory directory;
    const std::string file = directory.path("file");
    std::ofstream(file) << "no directory";
    Config config = local_config();
    config.weight_cache = file + "/cache";
    const Finding named = finding_of(config, "cache");
    EXPECT_EQ(named.level, Level::kFailed);
    EXPECT_EQ(named.exit_code, ExitCode::kUsage);
    EXPECT_THAT(named.text, HasSubstr("/file/cache: is not there, and this user cannot make it"));
    EXPECT_THAT(check_named_cache(config).error().message, HasSubstr("cannot make it"));
    config.weight_cache = file;
    EXPECT_FALSE(check_named_cache(config).ok());
    const ScopedVariable home("XDG_CACHE_HOME", file.c_str());
    config.weight_cache = "auto";
    EXPECT_EQ(finding_of(config, "cache").level, Level::kWarning);
    EXPECT_TRUE(check_named_cache(config).ok());
}

TEST(Surroundings, ACacheThatOthersCanWriteIsRefused) {
    const afd::test::TemporaryDirectory directory;
    const std::string cache = directory.path("cache");
    Config config = local_config();
    config.weight_cache = cache;
    EXPECT_THAT(finding_of(config, "cache").text, HasSubstr("which is made at the start"));
    EXPECT_FALSE(std::filesystem::exists(cache)) << "the doctor creates nothing";
    ASSERT_EQ(::mkdir(cache.c_str(), 0700), 0);
    EXPECT_EQ(finding_of(config, "cache").level, Level::kOk);
    const auto with_room = [&config](const CacheRoom& room) {
        return examine_surroundings(config, kTestDevices, std::time(nullptr), room).at(2);
    };
    const Finding enough = with_room({.missing_bytes = 8 << 20, .free_bytes = 8 << 20});
    EXPECT_EQ(enough.level, Level::kOk);
    EXPECT_THAT(enough.text, HasSubstr("; 8 MiB are to be packed"));
    const Finding full = with_room({.missing_bytes = 8 << 20, .free_bytes = 5 << 20});
    EXPECT_EQ(full.level, Level::kWarning);
    EXPECT_THAT(full.remedy,
                HasSubstr("cache lacks 8 MiB of packed experts, and its file system has 5 MiB "
                          "free: "));
    EXPECT_THAT(with_room({.is_memory = true}).text, HasSubstr("; it is memory, "));
    ::chmod(cache.c_str(), 0777);
    const Finding open = finding_of(config, "cache");
    EXPECT_EQ(open.level, Level::kFailed);
    EXPECT_EQ(open.exit_code, ExitCode::kUsage);
}

TEST(Surroundings, ALeaderWithoutFfnWorkersOpensEveryDevice) {
    Config config = config_of_host("");
    config.join.clear();
    config.ffn_hosts = "node1";
    config.ffn_workers = 1;
    config.cluster_listen = "0.0.0.0:7411";
    const Finding finding = finding_of(config, "network");
    EXPECT_EQ(finding.level, Level::kWarning) << finding.text;
    EXPECT_THAT(finding.remedy, HasSubstr("name the one of a closed network with ucx_devices"));
}

TEST(Surroundings, OfTheNetworkWhatUcxCannotUseIsSaid) {
    Config config = config_of_host("");
    EXPECT_EQ(finding_of(config, "network").level, Level::kOk);
    EXPECT_THAT(finding_of(config, "network").text,
                HasSubstr("the address that reaches the leader on the device that has it"));
    config.ucx_host = "10.9.9.9";
    EXPECT_EQ(finding_of(config, "network").level, Level::kFailed);
    EXPECT_EQ(finding_of(config, "network").exit_code, ExitCode::kUsage);
    config.ucx_host = "127.0.0.1";
    EXPECT_THAT(finding_of(config, "network").text, HasSubstr("only this machine reaches it"));
    config.ucx_host = "10.0.0.2";
    EXPECT_THAT(finding_of(config, "network").text, HasSubstr("at 10.0.0.2 on eth0"));
    config.ucx_devices = "eth7";
    EXPECT_THAT(finding_of(config, "network").text, HasSubstr("no network device 'eth7'"));
    config.ucx_devices = "all";
    EXPECT_EQ(finding_of(config, "network").level, Level::kWarning);
    EXPECT_THAT(finding_of(config, "network").remedy,
                HasSubstr("name the one of a closed network"));
    // Transports that have devices of their own: one of them, and all that there are.
    config.ucx_transports = "rc";
    config.ucx_devices = "mlx5_0:1";
    EXPECT_EQ(finding_of(config, "network").level, Level::kOk);
    config.ucx_devices = kUcxAuto;
    EXPECT_EQ(finding_of(config, "network").level, Level::kWarning);
    // A newer UCX may know more.
    for (const char* transports : {"pigeon", "tcp,pigeon"}) {
        config.ucx_transports = transports;
        EXPECT_EQ(finding_of(config, "network").level, Level::kWarning);
        EXPECT_THAT(finding_of(config, "network").remedy, HasSubstr("knows no 'pigeon'"));
    }
}

}  // namespace
}  // namespace afd::daemon
