// SPDX-License-Identifier: Apache-2.0
//
// Goal: bad input gives one clear line and a defined exit code, and costs only who sent it.
// Method: the real programs with wrong files, flags and requests. Oracle: exit status and the words
// of the message that say what is wrong and how to mend it.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/integration/instance.h"

namespace afd::test {
namespace {

namespace fs = std::filesystem;

Outcome run_afdd(std::vector<std::string> flags) {
    const std::vector<std::string> begin = {program("afdd"), "--instance", fresh_instance_name()};
    flags.insert(flags.begin(), begin.begin(), begin.end());
    return run_program(flags, make_directory());
}

// A copy of the model that may be damaged.
std::string copy_of_model() {
    const std::string copy = make_directory();
    for (const char* name : {"config.json",
                             "generation_config.json",
                             "tokenizer.json",
                             "tokenizer_config.json",
                             "model.safetensors"}) {
        fs::copy(test_model() + "/" + name, copy + "/" + name);
    }
    return copy;
}

void replace_in_file(const std::string& path, const std::string& from, const std::string& to) {
    std::ifstream in(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(path, std::ios::binary) << text;
}

// Overwrites the first element of a bf16 tensor in a safetensors file with a NaN.
void spoil_tensor(const std::string& path, const std::string& tensor) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::string key = "data_offsets\":[";
    const size_t begin = header.find(key, header.find("\"" + tensor + "\""));
    ASSERT_NE(begin, std::string::npos) << tensor;
    const uint64_t offset = std::stoull(header.substr(begin + key.size()));
    constexpr char kNan[] = {'\xc0', '\x7f'};
    file.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + offset));
    file.write(kNan, sizeof(kNan));
}

void expect_failure(const Outcome& outcome, int exit_status, const std::string& words) {
    EXPECT_EQ(outcome.exit_status, exit_status) << outcome.output;
    EXPECT_NE(outcome.output.find(words), std::string::npos)
        << "expected: " << words << "\nfound: " << outcome.output;
}

TEST(BadInput, AMissingModelIsNamed) {
    expect_failure(run_afdd({"--model", "/no/such/model"}), 3, "/no/such/model");
    expect_failure(run_afdd({}), 2, "model");
}

TEST(BadInput, ATruncatedCheckpointIsNamed) {
    const std::string model = copy_of_model();
    fs::resize_file(model + "/model.safetensors", fs::file_size(model + "/model.safetensors") / 2);
    expect_failure(run_afdd({"--model", model}), 3, "model.safetensors");
}

TEST(BadInput, AWrongShapeNamesTheTensorAndBothShapes) {
    const std::string model = copy_of_model();
    replace_in_file(
        model + "/config.json", "\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 96");
    const Outcome outcome = run_afdd({"--model", model, "--start-attempts", "1"});
    EXPECT_NE(outcome.exit_status, 0);
    EXPECT_NE(outcome.output.find("experts."), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("[96, 192]"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("[64, 192]"), std::string::npos) << outcome.output;
}

TEST(BadInput, AnUnsupportedConfigurationNamesTheKeyAndItsValue) {
    const std::string model = copy_of_model();
    replace_in_file(model + "/config.json", "\"silu\"", "\"relu\"");
    expect_failure(run_afdd({"--model", model}), 3, "hidden_act");
    expect_failure(run_afdd({"--model", model}), 3, "relu");
}

TEST(BadInput, TooLittleSharedMemoryIsSaidBeforeAWorkerStarts) {
    expect_failure(run_afdd({"--model",
                             test_model(),
                             "--attention-workers",
                             "1024",
                             "--kv-tokens",
                             "4096",
                             "--micro-batches",
                             "64",
                             "--micro-batch-size",
                             "4096"}),
                   4,
                   ": lower micro_batches or micro_batch_size");
}

TEST(BadInput, TooManyAttentionWorkersNamesTheLimit) {
    expect_failure(run_afdd({"--model", test_model(), "--attention-workers", "1025"}), 2, "1024");
}

TEST(BadInput, ASecondAfddOfTheSameInstanceIsRefusedWithThePidOfTheFirst) {
    Instance first;
    first.wait_ready();
    const Outcome second =
        run_program({program("afdd"), "--model", test_model(), "--instance", first.name()},
                    first.runtime_directory());
    expect_failure(second, 5, std::to_string(first.pid()));
    EXPECT_EQ(first.status().state(), "ready") << "the first one was disturbed";
}

TEST(BadInput, ASocketInUseIsNamed) {
    Instance first;
    first.wait_ready();
    const std::string socket = first.runtime_directory() + "/afd/" + first.name() + ".sock";
    expect_failure(run_afdd({"--model", test_model(), "--socket", socket}), 5, socket);
}

// A router that meets a NaN ends the request with an error, whichever side it is on; the system
// goes on.
TEST(BadInput, ANanInAGateEndsTheRequestAndNothingElse) {
    const std::string model = copy_of_model();
    spoil_tensor(model + "/model.safetensors", "model.layers.2.mlp.gate.weight");
    for (const char* router : {"attention", "ffn"}) {
        Instance instance({"--model", model, "--ffn-workers", "2", "--router", router});
        instance.wait_ready();
        client::Client client = instance.connect();
        for (int i = 0; i < 2; ++i) {
            client::Generate request;
            request.set_text("Once upon a time");
            request.set_max_tokens(3);
            const auto ended = client.generate(request);
            ASSERT_FALSE(ended.ok()) << router;
            EXPECT_EQ(ended.error().code, Code::kInternal) << router;
            EXPECT_NE(ended.error().message.find("the router's scores are not finite"),
                      std::string::npos)
                << router << ": " << ended.error().message;
        }
        EXPECT_EQ(instance.stop(), 0) << router;
    }
}

// Goal: bytes that are no text cost their own request; they closed the connection.
TEST(BadInput, APromptThatIsNotUtf8CostsItsOwnRequestOnly) {
    Instance instance;
    instance.wait_ready();
    client::Client client = instance.connect();
    client::Generate request;
    request.set_max_tokens(3);
    request.set_text("bad \xff\xfe");
    const auto refused = client.generate(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_EQ(refused.error().message, "the text is not valid UTF-8");
    request.set_text("The same connection goes on");
    EXPECT_TRUE(client.generate(request).ok());
}

// The same of a schema.
TEST(BadInput, ASchemaThatIsNotUtf8CostsItsOwnRequestOnly) {
    Instance instance;
    instance.wait_ready();
    client::Client client = instance.connect();
    client::Generate good;
    good.set_text("Once upon a time");
    good.set_max_tokens(20);
    client::Generate bad = good;
    bad.mutable_sampling()->mutable_response_format()->set_json_schema("{\"title\": \"\xff\"}");
    const auto refused = client.generate(bad);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_EQ(refused.error().message, "response_format is refused: json_schema is not valid JSON");
    EXPECT_TRUE(client.generate(good).ok()) << "the connection goes on";
}

TEST(BadInput, AConfigurationFileMustBeAFile) {
    expect_failure(run_afdd({"--config", make_directory()}), 2, "it must be a regular file");
}

// It aborted.
TEST(BadInput, TooFewDescriptorsAreSaid) {
    const std::string command = "ulimit -n 9; exec " + program("afdd") + " --instance " +
                                fresh_instance_name() + " --model " + test_model();
    expect_failure(run_program({"/bin/sh", "-c", command}, make_directory()),
                   2,
                   "raise the limit of open files (ulimit -n)");
}

// Its state was "starting" for ever: each worker that came found no descriptor for it.
TEST(BadInput, TooFewDescriptorsForTheWorkersAreSaid) {
    const std::string command = "ulimit -n 60; exec " + program("afdd") + " --instance " +
                                fresh_instance_name() +
                                " --attention-workers 4 --ffn-workers 4 --model " + test_model();
    expect_failure(run_program({"/bin/sh", "-c", command}, make_directory()),
                   2,
                   "at least 100 are needed: raise the limit of open files (ulimit -n)");
}

// Goal: who only asks whether afdd would start hears what afdd would say. Oracle: exit code and
// words of the start itself.
TEST(BadInput, CheckConfigAndDoctorRefuseWhatTheStartRefuses) {
    const std::string half = make_directory() + "/half";
    fs::copy(test_model(), half, fs::copy_options::recursive);
    std::ofstream(half + "/model.safetensors.index.json")
        << R"({"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})";
    struct Case {
        std::vector<std::string> flags;
        int exit_code;
        const char* text;
    };
    const Case cases[] = {
        {{"--pin", "0;1023"}, 2, "core 1023"},
        {{"--dispatch-dtype", "int8"}, 2, "dispatch_dtype"},
        {{"--int4-rows", "int8"}, 2, "int4_rows = 'int8'"},
        {{"--kv-dtype", "int8_channel"}, 3, "kv_scales.safetensors"},
        {{"--model", half}, 3, "model-00001-of-00002.safetensors"},
        {{"--http", "0.0.0.0:0"}, 2, "lets other machines in, and there is no API key"},
        {{"--transport",
          "ucx",
          "--join",
          "127.0.0.1:1",
          "--cluster-dir",
          "/nonexistent",
          "--host-name",
          "b"},
         2,
         "/nonexistent/ca.pem: no such file"},
        {{"--weight-cache", "/etc/passwd"}, 2, "/etc/passwd: not a directory"},
        {{"--weight-cache", "/etc/passwd/cache"}, 2, "/etc/passwd/cache: "},
    };
    for (const Case& wrong : cases) {
        for (const char* mode : {"--check-config", "--doctor", ""}) {
            std::vector<std::string> flags = {"--model", test_model()};
            if (wrong.flags.front() == "--model") flags.clear();
            flags.insert(flags.end(), wrong.flags.begin(), wrong.flags.end());
            if (*mode != '\0') flags.emplace_back(mode);
            expect_failure(run_afdd(flags), wrong.exit_code, wrong.text);
        }
    }
}

// A script that looks at the output would take it for whole.
TEST(BadInput, OutputThatCannotBeWrittenIsAFailure) {
    for (const char* flags : {"--help", "--check-config --demo", "--doctor --demo"}) {
        const std::string command = program("afdd") + " " + flags + " > /dev/full";
        expect_failure(run_program({"/bin/sh", "-c", command}, make_directory()),
                       1,
                       "cannot write standard output");
    }
}

TEST(BadInput, MoreFfnWorkersThanExpertsAreRefused) {
    expect_failure(
        run_afdd({"--model", test_model(), "--ffn-workers", "40"}), 2, "ffn_workers = 40");
}

TEST(BadInput, APromptBeyondTheContextIsRefusedWithBothNumbers) {
    Instance instance;
    instance.wait_ready();
    client::Client client = instance.connect();
    const uint32_t context = instance.status().context_length();
    client::Generate request;
    for (uint32_t i = 0; i <= context; ++i) request.mutable_token_ids()->add_ids(5);
    auto refused = client.generate(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_NE(refused.error().message.find(std::to_string(context)), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find(std::to_string(context + 1)), std::string::npos)
        << refused.error().message;

    client::Generate bad_id;
    bad_id.mutable_token_ids()->add_ids(instance.status().vocab_size());
    bad_id.set_max_tokens(1);
    EXPECT_EQ(client.generate(bad_id).error().code, Code::kInvalidArgument);

    client::Generate good;
    good.set_text("The same connection goes on");
    good.set_max_tokens(3);
    EXPECT_TRUE(client.generate(good).ok());
}

}  // namespace
}  // namespace afd::test
