// SPDX-License-Identifier: Apache-2.0
//
// `afdctl doctor` and the afdd of the same configuration.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "proto/sanitizers.h"
#include "tests/integration/footprint.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

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
                                "runtime ",
                                "certificates ",
                                "cache ",
                                "network ",
                                "http "}) {
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
    std::vector<std::string> start = {program("afdd"), "--instance", fresh_instance_name()};
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
    std::vector<std::string> start = {program("afdd"), "--instance", fresh_instance_name()};
    start.insert(start.end(), flags.begin(), flags.end());
    const Outcome refused = run_program(start, directory);
    EXPECT_EQ(refused.exit_status, 4) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("(weights of " + num_workers + " attention workers "));
    EXPECT_THAT(refused.output, HasSubstr("lower attention_workers"));
    EXPECT_EQ(refused.output.find("attention-0"), std::string::npos) << refused.output;
}

// The MiB behind "what " in the sum that --check-config prints; 0: it is not there.
uint64_t mib_of(const std::string& what, const std::string& output) {
    const size_t place = output.find(what + " ");
    return place == std::string::npos ? 0 : std::stoull(output.substr(place + what.size() + 1));
}

// Goal: what a worker takes at its start is counted before. Method: passes of many rows, on an
// instance where nobody computes. Oracle: what the kernel says of the FFN worker's private memory,
// which is these rows, and less than 48 MiB besides; a sanitizer has several times as much.
TEST(Doctor, CountsTheRowsOfTheLargestPass) {
    const std::vector<std::string> flags = {"--attention-workers",
                                            "8",
                                            "--attention-threads",
                                            "1",
                                            "--ffn-threads",
                                            "2",
                                            "--micro-batch-size",
                                            "4096",
                                            "--kv-tokens",
                                            "4096"};
    std::vector<std::string> check = {
        program("afdd"), "--check-config", "--model", test_model(), "--dispatch", "window"};
    check.insert(check.end(), flags.begin(), flags.end());
    const Outcome checked = run_program(check, make_directory());
    const uint64_t mib = mib_of("rows of passes", checked.output);
    EXPECT_GT(mib, 0u) << checked.output;
    std::vector<std::string> start = flags;
    start.insert(start.end(), {"--dispatch", "window"});
    Instance instance(start);
    instance.wait_ready();
    const auto private_mib = [](pid_t pid) { return footprint_of(pid).kib >> 10; };
    int64_t found = private_mib(instance.worker_pids("ffn").at(0));
    EXPECT_LT(found, static_cast<int64_t>(AFD_SANITIZED ? 20 * mib : mib + 48));
    for (const pid_t pid : instance.worker_pids("attention")) found += private_mib(pid);
    EXPECT_GE(found, static_cast<int64_t>(mib));
    EXPECT_EQ(instance.stop(), 0);
}

// "warn  afdd: ..." of a log, or "afdd: ..." of a program that prints.
std::vector<std::string> lines_behind(const std::string& mark, const std::string& output) {
    std::vector<std::string> told;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        const size_t place = line.find(mark);
        if (place != std::string::npos) told.push_back(line.substr(place + mark.size()));
    }
    return told;
}

// Goal: --check-config warns of what the start warns of. Method: everything at once; the start ends
// soon, for lack of memory. Oracle: the same lines, and three at least.
TEST(Doctor, CheckConfigWarnsAsTheStartDoes) {
    const std::string directory = make_directory();
    const std::string afdd =
        "unset HOME XDG_CACHE_HOME; exec " + program("afdd") +
        " --demo --numeric-class amx --attention-threads 1024 --gather-us 7 --ffn-policy any "
        "--kv-tokens 2147483648 --instance " +
        fresh_instance_name();
    const Outcome checked = run_program({"/bin/sh", "-c", afdd + " --check-config"}, directory);
    const Outcome started = run_program({"/bin/sh", "-c", afdd}, directory);
    EXPECT_EQ(checked.exit_status, 0) << checked.output;
    EXPECT_EQ(started.exit_status, 4) << started.output;
    const std::vector<std::string> warnings = lines_behind(" warn  afdd: ", started.output);
    EXPECT_EQ(lines_behind("afdd: ", checked.output), warnings);
    EXPECT_THAT(warnings, Contains(HasSubstr("gather_us (from --gather-us) has no effect")));
    EXPECT_THAT(warnings, Contains(HasSubstr("packed weights are not kept: ")));
    EXPECT_THAT(warnings, Contains(HasSubstr(" cores are allowed, and some get several ")));
}

}  // namespace
}  // namespace afd::test
