// SPDX-License-Identifier: Apache-2.0
//
// What who operates an instance relies on: what it tells the service manager, what SIGHUP changes,
// and what stands in the log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "daemon/program/exit_codes.h"
#include "tests/integration/background_generation.h"
#include "tests/notify_socket.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Waits until the log has `text`; fails the test otherwise.
void wait_for_log(const Instance& instance, const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (instance.log().find(text) == std::string::npos) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "no line with " << text;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

// Goal: afdd is a service of Type=notify with a watchdog. Method: the test is the service manager.
TEST(Service, TellsTheManagerOfItsLife) {
    NotifySocket manager;
    Instance instance({"--attention-workers", "1"},
                      "export NOTIFY_SOCKET=" + manager.path() + " WATCHDOG_USEC=400000");
    EXPECT_THAT(manager.wait_for("READY=1"), HasSubstr("STATUS=serving "));
    instance.wait_ready();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1");
    instance.signal(SIGTERM);
    const std::string stopping = manager.wait_for("STOPPING=1");
    EXPECT_THAT(stopping, HasSubstr("EXTEND_TIMEOUT_USEC="));
    EXPECT_EQ(instance.wait_exit(), 0);
}

// Goal: a SIGHUP makes nobody ready. Method: an instance whose workers nobody starts. Oracle: what
// the manager hears until it ends.
TEST(Service, AReloadBeforeItIsReadyIsNoReadiness) {
    NotifySocket manager;
    Instance instance({"--spawn", "false"}, "export NOTIFY_SOCKET=" + manager.path());
    wait_for_log(instance, "waiting for workers that are started by hand");
    instance.signal(SIGHUP);
    wait_for_log(instance, "SIGHUP: log_level is");
    instance.signal(SIGTERM);
    EXPECT_EQ(instance.wait_exit(), 0);
    std::string said;
    for (std::string next; !(next = manager.next(std::chrono::milliseconds(0))).empty();) {
        said += next + "\n";
    }
    EXPECT_THAT(said, HasSubstr("STOPPING=1"));
    EXPECT_THAT(said, Not(HasSubstr("READY=1")));
}

// Goal: a signal drains, also behind a client that asked for that before: a service manager sends
// one, too. Oracle: the request that runs meanwhile ends whole.
TEST(Service, TheFirstSignalBehindAStopDrains) {
    constexpr uint32_t kDrainedTokens = 600;
    Instance instance(patient_pair());
    instance.wait_ready();
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    BackgroundGeneration background(instance, long_request(kDrainedTokens));
    background.stop_amid(5, ffn);
    const Outcome asked =
        run_program({program("afdctl"), "stop", "--no-wait", "--instance", instance.name()},
                    instance.runtime_directory());
    EXPECT_EQ(asked.exit_status, 0) << asked.output;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    instance.signal(SIGTERM);
    wait_for_log(instance, "it drains already");
    send_signal(ffn, SIGCONT);
    const auto found = background.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), kDrainedTokens);
    EXPECT_EQ(instance.wait_exit(), 0);
}

// Goal: who stops an instance hears what that cost. Method: a request that cannot go on, and little
// time to drain. Oracle: what afdctl says, and the exit code of afdd.
TEST(Service, StopSaysHowManyRequestsWereCutOff) {
    Instance instance(patient_pair({"--drain-timeout-ms", "200"}));
    instance.wait_ready();
    BackgroundGeneration background(instance, long_request(600));
    background.stop_amid(5, instance.worker_pids("ffn").at(0));
    const Outcome stopped = run_program({program("afdctl"), "stop", "--instance", instance.name()},
                                        instance.runtime_directory());
    EXPECT_EQ(stopped.exit_status, 1);
    EXPECT_THAT(stopped.output,
                HasSubstr("afdd has stopped, but 1 request had not finished, and was cut off"));
    EXPECT_FALSE(background.finish().ok());
    EXPECT_EQ(instance.wait_exit(), 6);
}

// Goal: behind `afdctl stop` another afdd may have the name at once. Oracle: the kernel's word
// about the process, which is a zombie or gone.
TEST(Service, StopReturnsWhenAfddHasEnded) {
    for (int i = 0; i < 3; ++i) {
        Instance instance;
        instance.wait_ready();
        const Outcome stopped =
            run_program({program("afdctl"), "stop", "--instance", instance.name()},
                        instance.runtime_directory());
        std::string state;
        std::ifstream status("/proc/" + std::to_string(instance.pid()) + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("State:")) state = line;
        }
        EXPECT_EQ(stopped.exit_status, 0) << stopped.output;
        EXPECT_THAT(state, ::testing::AnyOf("", HasSubstr("zombie"), HasSubstr("dead")));
        EXPECT_EQ(instance.wait_exit(), 0);
    }
}

// Goal: a loop that stands still is no living service. Oracle: a stopped afdd says nothing.
TEST(Service, FeedsNoWatchdogWhileItsLoopStandsStill) {
    NotifySocket manager;
    Instance instance({}, "export NOTIFY_SOCKET=" + manager.path() + " WATCHDOG_USEC=200000");
    instance.wait_ready();
    instance.signal(SIGSTOP);
    while (!manager.next(std::chrono::milliseconds(300)).empty()) {
    }
    EXPECT_EQ(manager.next(std::chrono::milliseconds(500)), "");
    instance.signal(SIGCONT);
    EXPECT_EQ(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1");
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: the doctor speaks of the same instance that afdd would start. Oracle: what it says of the
// demo, of a configuration that is wrong, and of limits that the test sets.
TEST(Doctor, LooksAtTheMachineForAConfiguration) {
    const std::string directory = make_directory();
    const Outcome demo = run_program({program("afdctl"), "doctor", "--", "--demo"}, directory);
    EXPECT_EQ(demo.exit_status, 0) << demo.output;
    for (const char* subject : {"cpu ",
                                "cores ",
                                "shm ",
                                "memory ",
                                "nofile ",
                                "limits ",
                                "hugepages ",
                                "clock ",
                                "certificates ",
                                "cache ",
                                "network "}) {
        EXPECT_THAT(demo.output, HasSubstr(subject));
    }
    EXPECT_THAT(demo.output, HasSubstr("; segments take "));
    EXPECT_THAT(demo.output, HasSubstr("numeric class "));
    const Outcome no_model = run_program({program("afdctl"), "doctor"}, directory);
    EXPECT_EQ(no_model.exit_status, 0) << no_model.output;
    EXPECT_THAT(no_model.output, HasSubstr("numeric class "));
    EXPECT_THAT(no_model.output, HasSubstr("what is needed depends on the model: give --model"));
    const Outcome object = run_program(
        {program("afdctl"), "--json", "doctor", "--", "--demo", "--attention-workers", "64"},
        directory);
    const json findings = json::parse(object.output, nullptr, false);
    ASSERT_TRUE(findings.is_array()) << object.output;
    EXPECT_EQ(findings[1]["subject"], "cores");
    EXPECT_EQ(findings[1]["level"], "warning");
    const Outcome wrong =
        run_program({program("afdctl"), "doctor", "--", "--ffn-workers", "many"}, directory);
    EXPECT_EQ(wrong.exit_status, 2);
    EXPECT_THAT(wrong.output, HasSubstr("ffn_workers"));
    const Outcome gone =
        run_program({program("afdctl"), "doctor", "--", "--model", "/no/model"}, directory);
    EXPECT_EQ(gone.exit_status, 3) << gone.output;
    EXPECT_THAT(gone.output, HasSubstr("/no/model"));
    const std::string few = "ulimit -n 100; exec " + program("afdctl") + " doctor -- --demo";
    EXPECT_THAT(run_program({"/bin/sh", "-c", few}, directory).output,
                HasSubstr("nofile        warning  100 open files"));
}

// Goal: caches for which no machine has room are found before a worker starts. Oracle: the doctor's
// rating and afdd's exit code are those of memory, and no worker has spoken.
TEST(Doctor, CountsTheKvCachesAndAfddRefusesThemAtOnce) {
    const std::string directory = make_directory();
    const std::vector<std::string> flags = {"--demo", "--kv-tokens", "2147483648"};
    std::vector<std::string> doctor = {program("afdctl"), "doctor", "--"};
    doctor.insert(doctor.end(), flags.begin(), flags.end());
    const Outcome rated = run_program(doctor, directory);
    EXPECT_EQ(rated.exit_status, 4) << rated.output;
    EXPECT_THAT(rated.output, HasSubstr("memory        failed"));
    EXPECT_THAT(rated.output, HasSubstr("KV caches of 2 attention workers "));
    std::vector<std::string> start = {program("afdd")};
    start.insert(start.end(), flags.begin(), flags.end());
    const Outcome refused = run_program(start, directory);
    EXPECT_EQ(refused.exit_status, 4) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("KV caches of 2 attention workers "));
    EXPECT_THAT(refused.output, HasSubstr("lower attention_workers or kv_tokens"));
    EXPECT_EQ(refused.output.find("attention-0"), std::string::npos) << refused.output;
    std::vector<std::string> check = start;
    check.push_back("--check-config");
    const Outcome checked = run_program(check, directory);
    EXPECT_EQ(checked.exit_status, 0) << "it may be for another machine";
    EXPECT_THAT(checked.output,
                HasSubstr("# memory: on this host weights of 2 attention workers "));
}

// The demo model with `vocab_size` tokens instead of its own: of the weights only the headers.
std::string make_wide_model(uint64_t vocab_size) {
    namespace fs = std::filesystem;
    const std::string directory = make_directory();
    for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
        fs::copy_file(AFD_DEMO_MODEL "/" + std::string(name), directory + "/" + name);
    }
    std::ifstream config_file(AFD_DEMO_MODEL "/config.json");
    json config = json::parse(config_file);
    config["vocab_size"] = vocab_size;
    std::ofstream(directory + "/config.json") << config;
    std::ifstream weights(AFD_DEMO_MODEL "/model.safetensors", std::ios::binary);
    uint64_t num_bytes = 0;
    weights.read(reinterpret_cast<char*>(&num_bytes), sizeof(num_bytes));
    std::string text(num_bytes, ' ');
    weights.read(text.data(), static_cast<std::streamsize>(num_bytes));
    json header = json::parse(text);
    header.erase("__metadata__");
    uint64_t end = 0;
    for (json& tensor : header) {
        const uint64_t first = tensor["data_offsets"][0];
        uint64_t size = tensor["data_offsets"][1].get<uint64_t>() - first;
        if (tensor["shape"][0] == 2048) {
            size = size / 2048 * vocab_size;
            tensor["shape"][0] = vocab_size;
        }
        tensor["data_offsets"] = {end, end + size};
        end += size;
    }
    text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    num_bytes = text.size();
    const std::string path = directory + "/model.safetensors";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&num_bytes), sizeof(num_bytes))
        .write(text.data(), static_cast<std::streamsize>(num_bytes));
    fs::resize_file(path, sizeof(num_bytes) + num_bytes + end);
    return directory;
}

// Goal: workers that fit one by one and not together are found before the first of them starts.
// Method: an embedding and a head of 1.5 GiB each, which every attention worker has for itself.
// Oracle: as above.
TEST(Doctor, CountsTheWeightsOfEachAttentionWorkerAndAfddRefusesThemAtOnce) {
    const std::string directory = make_directory();
    const std::string model = make_wide_model(uint64_t{1} << 22);
    const uint64_t memory_bytes =
        static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
    const std::string num_workers = std::to_string(memory_bytes / (uint64_t{3} << 30) + 1);
    std::vector<std::string> flags = {
        "--model", model, "--attention-workers", num_workers, "--kv-tokens", "1024"};
    std::vector<std::string> doctor = {program("afdctl"), "doctor", "--"};
    doctor.insert(doctor.end(), flags.begin(), flags.end());
    const Outcome rated = run_program(doctor, directory);
    EXPECT_EQ(rated.exit_status, 4) << rated.output;
    EXPECT_THAT(rated.output, HasSubstr("memory        failed"));
    EXPECT_THAT(rated.output, HasSubstr("(weights of " + num_workers + " attention workers "));
    std::vector<std::string> start = {program("afdd")};
    start.insert(start.end(), flags.begin(), flags.end());
    const Outcome refused = run_program(start, directory);
    EXPECT_EQ(refused.exit_status, 4) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("(weights of " + num_workers + " attention workers "));
    EXPECT_THAT(refused.output, HasSubstr("lower attention_workers"));
    EXPECT_EQ(refused.output.find("attention-0"), std::string::npos) << refused.output;
}

void write_config(const std::string& file, const std::string& text) {
    std::ofstream(file) << text;
    std::filesystem::permissions(file, std::filesystem::perms(0600));
}

// Of a unit in deploy/: of a setting that comes more than once, all values.
std::multimap<std::string, std::string> read_unit(const std::string& name) {
    std::ifstream file(AFD_DEMO_MODEL "/../deploy/" + name);
    std::multimap<std::string, std::string> settings;
    for (std::string line; std::getline(file, line);) {
        const size_t equals = line.find('=');
        if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
        settings.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
    return settings;
}

// The exit codes behind which a unit must not start afdd again, as a unit has them.
std::string final_exit_codes() {
    std::string codes;
    for (const daemon::ExitCodeText& entry : daemon::kExitCodes) {
        if (entry.is_to_restart || entry.code == daemon::ExitCode::kOk) continue;
        codes += (codes.empty() ? "" : " ") + std::to_string(static_cast<int>(entry.code));
    }
    return codes;
}

// Goal: the unit and afdd agree. Oracle: the defaults and exit codes of afdd's own --help.
TEST(Service, TheUnitFitsAfdd) {
    const auto all = read_unit("afdd.service");
    std::map<std::string, std::string> settings(all.begin(), all.end());
    // Which is in none of systemd's sets, and without which a worker would be killed at its start.
    EXPECT_THAT(all, Contains(Pair("SystemCallFilter", "seccomp")));
    // An address that is not there yet cannot be listened on, which is not tried again.
    EXPECT_THAT(settings["After"], HasSubstr("network-online.target"));
    EXPECT_EQ(settings["Wants"], "network-online.target");
    // UCX asks the kernel over it which devices there are.
    EXPECT_THAT(settings["RestrictAddressFamilies"], HasSubstr("AF_NETLINK"));
    EXPECT_EQ(settings["Type"], "notify");
    EXPECT_EQ(settings["KillMode"], "mixed");
    EXPECT_GT(std::stoi(settings["WatchdogSec"]), 1);
    const std::string help = run_program({program("afdd"), "--help"}, make_directory()).output;
    const std::regex drain("--drain-timeout-ms[^\\[]*\\[([0-9]+) ms\\]");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(help, found, drain)) << help;
    EXPECT_GT(std::stoi(settings["TimeoutStopSec"]) * 1000, std::stoi(found[1]) + 3000);
    EXPECT_EQ(settings["RestartPreventExitStatus"], final_exit_codes());
    EXPECT_THAT(settings["RestartPreventExitStatus"], HasSubstr("6"))
        << "a drain that took too long";
    // The old process of an upgrade is believed when the new one has died.
    EXPECT_EQ(settings["NotifyAccess"], "all");
    EXPECT_THAT(help, HasSubstr("  2  the command line, environment, configuration file"));
    EXPECT_THAT(help, HasSubstr("  3  the model directory is missing"));
    EXPECT_EQ(settings["ExecStart"], "/usr/bin/afdd --config /etc/afd/afd.toml");
    // Who asks the service is told to be its user, and where the socket is.
    EXPECT_EQ(settings["RuntimeDirectoryMode"], "0700");
    EXPECT_EQ(settings["Environment"].find("XDG_RUNTIME_DIR=/run "), 0u);
    const std::string client = "sudo -u " + settings["User"] + " env XDG_RUNTIME_DIR=/run afdctl ";
    for (const char* file : {"/../deploy/afdd.service", "/../docs/operations.md"}) {
        std::ifstream stream(std::string(AFD_DEMO_MODEL) + file);
        const std::string text{std::istreambuf_iterator<char>(stream),
                               std::istreambuf_iterator<char>()};
        EXPECT_THAT(text, HasSubstr(client)) << file;
    }
}

// Goal: so do the unit of a host that joins and the configuration in its comment. Oracle: afdd's
// own judgement of that, and the 3 s that it gives its workers to end.
TEST(Service, TheUnitOfAHostFitsAfdd) {
    const auto all = read_unit("afdd-host.service");
    std::map<std::string, std::string> settings(all.begin(), all.end());
    // Workers over UCX filter themselves, too.
    EXPECT_THAT(all, Contains(Pair("SystemCallFilter", "seccomp")));
    EXPECT_EQ(settings["Type"], "notify");
    EXPECT_EQ(settings["KillMode"], "mixed");
    EXPECT_GT(std::stoi(settings["TimeoutStopSec"]), 3);
    EXPECT_EQ(settings["RestartPreventExitStatus"], final_exit_codes());
    EXPECT_GT(std::stoi(settings["WatchdogSec"]), 1);
    EXPECT_EQ(settings["ExecReload"], "/bin/kill -HUP $MAINPID");
    EXPECT_EQ(settings["ExecStart"], "/usr/bin/afdd --config /etc/afd/host.toml");
    EXPECT_THAT(settings["RestrictAddressFamilies"], HasSubstr("AF_NETLINK"));

    std::ifstream unit(AFD_DEMO_MODEL "/../deploy/afdd-host.service");
    std::string options;
    for (std::string line; std::getline(unit, line);) {
        if (line.starts_with("#   ")) options += line.substr(4) + "\n";
    }
    options =
        std::regex_replace(options, std::regex("model = .*"), "model = \"" AFD_DEMO_MODEL "\"");
    const std::string directory = make_directory();
    const Outcome made = run_program(
        {program("afdctl"), "cluster", "init", directory + "/cluster", "--host", "b"}, directory);
    ASSERT_EQ(made.exit_status, 0) << made.output;
    options = std::regex_replace(options, std::regex("/etc/afd/cluster"), directory + "/cluster");
    const std::string file = directory + "/host.toml";
    write_config(file, options);
    const Outcome checked =
        run_program({program("afdd"), "--config", file, "--check-config"}, make_directory());
    EXPECT_EQ(checked.exit_status, 0) << checked.output;
    EXPECT_THAT(checked.output, HasSubstr("join = \"leader.example.org:7411\""));
}

// Goal: SIGHUP changes the log level of afdd, of its workers and of those that come later, and
// nothing else; a file that is wrong changes nothing.
TEST(Reload, SighupTakesTheLogLevelOfTheFile) {
    const std::string file = make_directory() + "/afd.toml";
    write_config(file, "log_level = \"info\"\n");
    Instance instance({"--config", file});
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    EXPECT_THAT(instance.log(), Not(HasSubstr("request 1: ")));

    write_config(file, "log_level = \"debug\"\nmax_queue = 1\n");
    instance.signal(SIGHUP);
    wait_for_log(instance, "log_level is debug; every other option stays");
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    wait_for_log(instance, "request 2: accepted from ");
    wait_for_log(instance, "request 2: goes to attention worker 0");
    wait_for_log(instance, "request 2: finished after ");

    write_config(file, "log_level = \"loud\"\n");
    instance.signal(SIGHUP);
    wait_for_log(instance, "nothing changes: ");
    wait_for_log(instance, "loud");
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    wait_for_log(instance, "request 3: finished after ");
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: SIGUSR1 ends nothing and tells the state. Oracle: the status that a client gets.
TEST(Service, SaysItsStateOnSigusr1) {
    Instance instance({"--attention-workers", "1"});
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(3)).ok());
    instance.signal(SIGUSR1);
    wait_for_log(instance, "SIGUSR1: {");
    // The line behind it shows that it is whole.
    instance.signal(SIGHUP);
    wait_for_log(instance, "SIGHUP: log_level is");
    const std::string log = instance.log();
    const size_t begin = log.find("SIGUSR1: {") + 9;
    const json state = json::parse(log.substr(begin, log.find('\n', begin) - begin));
    EXPECT_EQ(state["instance"], instance.name());
    EXPECT_EQ(state["state"], "ready");
    EXPECT_EQ(state["workers"].size(), 2U);
    EXPECT_EQ(state["num_finished"], instance.status().num_finished());
    const Outcome status =
        run_program({program("afdctl"), "--instance", instance.name(), "status", "--json"},
                    instance.runtime_directory());
    // What both have is of the same kind: who reads one can read the other.
    const json shown = json::parse(status.output, nullptr, false);
    ASSERT_TRUE(shown.is_object()) << status.output;
    for (const auto& [name, value] : shown.items()) {
        ASSERT_TRUE(state.contains(name)) << name;
        EXPECT_EQ(state[name].is_number(), value.is_number()) << name;
    }
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a key that is taken out of the file serves nobody from the SIGHUP on, and a new one does.
TEST(Reload, SighupTakesTheApiKeysOfTheFile) {
    const std::string first = "first-key-of-the-file";
    const std::string second = "second-key-of-the-file";
    const std::string file = make_directory() + "/keys";
    write_config(file, first + "\n");
    Instance instance({"--http", "127.0.0.1:0", "--http-keys", file});
    instance.wait_ready();
    const std::string log = instance.log();
    const std::regex address("http://127\\.0\\.0\\.1:[0-9]+");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(log, found, address)) << log;
    const std::string url = found[0].str() + "/v1/models";
    const auto status_with = [&](const std::string& key) {
        const Outcome asked = run_program({"/usr/bin/curl",
                                           "-s",
                                           "-o",
                                           "/dev/null",
                                           "-w",
                                           "%{http_code}",
                                           "-H",
                                           "Authorization: Bearer " + key,
                                           url},
                                          instance.runtime_directory());
        return asked.output;
    };
    EXPECT_EQ(status_with(first), "200");
    EXPECT_EQ(status_with(second), "401");
    write_config(file, second + "\n");
    EXPECT_EQ(status_with(first), "200");
    instance.signal(SIGHUP);
    wait_for_log(instance, "API keys were read again");
    EXPECT_EQ(status_with(first), "401");
    EXPECT_EQ(status_with(second), "200");
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: in JSON a program finds every line of a request by its number. Oracle: the lines of a
// request whose worker is killed: accepted, placed, begun again, finished.
TEST(Log, EveryJsonLineOfARequestHasItsNumber) {
    Instance instance({"--log-format", "json", "--log-level", "debug"});
    instance.wait_ready();
    const pid_t attention = instance.worker_pids("attention").at(0);
    const pid_t ffn = instance.worker_pids("ffn").at(0);
    // Stopped, so that the request outlasts the kill.
    send_signal(ffn, SIGSTOP);
    BackgroundGeneration background(instance, long_request(900));
    instance.wait_for("the request runs",
                      [](const client::Status& status) { return status.num_running() == 1; });
    send_signal(attention, SIGKILL);
    send_signal(ffn, SIGCONT);
    ASSERT_TRUE(background.finish().ok());
    EXPECT_EQ(instance.stop(), 0);
    std::vector<std::string> told;
    std::istringstream lines(instance.log());
    for (std::string text; std::getline(lines, text);) {
        if (!text.starts_with("{")) continue;
        const json line = json::parse(text, nullptr, false);
        ASSERT_FALSE(line.is_discarded()) << text;
        const std::string message = line["message"];
        EXPECT_THAT(message, Not(::testing::StartsWith("request ")));
        if (line.value("request", 0) == 1) told.push_back(message);
    }
    ASSERT_EQ(told.size(), 5u) << instance.log();
    EXPECT_THAT(told[0], ::testing::StartsWith("accepted from "));
    EXPECT_THAT(told[1], HasSubstr("goes to attention worker 0"));
    EXPECT_THAT(told[2], HasSubstr("will run again, behind "));
    EXPECT_THAT(told[3], HasSubstr("goes to attention worker 0"));
    EXPECT_THAT(told[4], HasSubstr("finished after "));
}

// Goal: under load a line every ten seconds, and none when nothing runs.
TEST(Log, HasAHeartbeatWhileRequestsRunAndNoneWhenIdle) {
    Instance instance;
    instance.wait_ready();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (instance.log().find(" tok/s | ") == std::string::npos &&
           std::chrono::steady_clock::now() < deadline) {
        ASSERT_TRUE(instance.connect().generate(long_request(900)).ok());
    }
    EXPECT_THAT(instance.log(), HasSubstr("| attention busy "));
    EXPECT_THAT(instance.log(), HasSubstr("| ffn busy "));
    // What came after the line's period began is said once more; then there is silence.
    std::this_thread::sleep_for(std::chrono::seconds(11));
    const std::string log = instance.log();
    std::this_thread::sleep_for(std::chrono::seconds(11));
    EXPECT_EQ(instance.log(), log);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
