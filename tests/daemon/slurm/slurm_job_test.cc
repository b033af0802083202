// SPDX-License-Identifier: Apache-2.0
//
// What a task of a Slurm step becomes. The answers of scontrol are those that Slurm 22.05 gave;
// with a real Slurm: tests/integration/slurm/slurm_test.py.
#include "daemon/slurm/slurm_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "daemon/options/resolved_config.h"
#include "tests/daemon/scoped_variable.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

Result<std::string> answer(const std::vector<std::string>& arguments) {
    const std::map<std::vector<std::string>, std::string> answers = {
        {{"show", "hostnames", "n[1-3]"}, "n1\nn2\nn3\n"},
        {{"show", "hostnames", "N7"}, "N7\n"},
        {{"--oneliner", "show", "node", "n1"},
         "NodeName=n1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.1 NodeHostName=a Port=1 \n"},
        {{"show", "hostnames", "p[1-2]"}, "p1\np2\n"},
        {{"--oneliner", "show", "node", "p1"}, "NodeName=p1 NodeAddr=localhost Port=1 \n"},
        {{"show", "hostnames", "q[1-2]"}, "q1\nq2\n"},
        {{"--oneliner", "show", "node", "q1"}, "NodeName=q1 NodeAddr=127.0.0.1 Port=1 \n"}};
    const auto found = answers.find(arguments);
    if (found == answers.end()) return Error{Code::kUnavailable, "no such node"};
    return found->second;
}

std::map<std::string, std::string> task_on(const std::string& node) {
    return {{"SLURM_JOB_ID", "24077"},
            {"SLURM_STEP_NODELIST", "n[1-3]"},
            {"SLURM_STEP_NUM_TASKS", "3"},
            {"SLURMD_NODENAME", node}};
}

TEST(SlurmJob, TheFirstNodeLeads) {
    const auto job = read_slurm_job(task_on("n1"), answer);
    ASSERT_TRUE(job.ok()) << job.error().message;
    EXPECT_TRUE(job.value().leads());
    EXPECT_THAT(job.value().nodes, ElementsAre("n1", "n2", "n3"));
    EXPECT_THAT(job.value().options(),
                UnorderedElementsAre(Pair("instance", "job24077"),
                                     Pair("transport", "ucx"),
                                     Pair("ucx_host", "10.0.0.1"),
                                     Pair("cluster_listen", "10.0.0.1:20077"),
                                     Pair("attention_workers", "3"),
                                     Pair("attention_hosts", "local,n2,n3"),
                                     Pair("ffn_workers", "3"),
                                     Pair("ffn_hosts", "local,n2,n3")));
}

TEST(SlurmJob, TheOthersJoinIt) {
    const auto job = read_slurm_job(task_on("N3"), answer);
    ASSERT_TRUE(job.ok()) << job.error().message;
    EXPECT_FALSE(job.value().leads());
    EXPECT_THAT(job.value().options(),
                UnorderedElementsAre(Pair("instance", "job24077_2"),
                                     Pair("transport", "ucx"),
                                     Pair("join", "10.0.0.1:20077"),
                                     Pair("host_name", "n3"),
                                     Pair("leave_with_leader", "true")));
}

TEST(SlurmJob, OneNodeIsAnInstanceLikeAnyOther) {
    auto environment = task_on("N7");
    environment["SLURM_STEP_NODELIST"] = "N7";
    environment["SLURM_STEP_NUM_TASKS"] = "1";
    const auto job = read_slurm_job(environment, answer);
    ASSERT_TRUE(job.ok()) << job.error().message;
    EXPECT_THAT(job.value().options(), ElementsAre(Pair("instance", "job24077")));
}

// All tasks have one command line. Oracle: what the two must agree on.
TEST(SlurmJob, WhatIsSaidOfHostsIsForTheLeader) {
    const auto config_of = [](const std::string& node, const std::string& listen) {
        ConfigSources sources;
        sources.slurm = read_slurm_job(task_on(node), answer).value().options();
        sources.flags = {{"model", "m"}, {"cluster_dir", "d"}, {"ffn_hosts", "n2"}};
        if (!listen.empty()) sources.flags["cluster_listen"] = listen;
        const auto resolved = resolve_config(sources);
        EXPECT_TRUE(resolved.ok()) << resolved.error().message;
        return resolved.ok() ? resolved.value().config : Config();
    };
    EXPECT_EQ(config_of("n1", "").ffn_hosts, "n2");
    EXPECT_EQ(config_of("n1", "").attention_hosts, "local,n2,n3");
    EXPECT_EQ(config_of("n2", "").ffn_hosts, "");
    EXPECT_EQ(config_of("n2", "").join, config_of("n1", "").cluster_listen);
    EXPECT_EQ(config_of("n1", "0.0.0.0:7000").cluster_listen, "0.0.0.0:7000");
    EXPECT_EQ(config_of("n2", "0.0.0.0:7000").join, "10.0.0.1:7000");
    EXPECT_EQ(config_of("n2", "[fd00::1]:7000").join, "[fd00::1]:7000");
}

std::string refusal(const std::map<std::string, std::string>& environment) {
    const auto job = read_slurm_job(environment, answer);
    return job.ok() ? "none" : job.error().message;
}

TEST(SlurmJob, SaysWhatIsNoTask) {
    for (const auto& [name, value] : task_on("n1")) {
        auto environment = task_on("n1");
        environment.erase(name);
        EXPECT_THAT(refusal(environment),
                    HasSubstr(name + " is not set, so this is no task of a Slurm job; start it"));
    }
}

TEST(SlurmJob, SaysWhatDoesNotFit) {
    auto environment = task_on("n1");
    environment["SLURM_STEP_NUM_TASKS"] = "6";
    EXPECT_THAT(refusal(environment), HasSubstr("6 tasks on 3 nodes, and one afdd runs on each"));
    EXPECT_THAT(refusal(task_on("n4")), HasSubstr("node 'n4' (SLURMD_NODENAME) is none of"));
    environment = task_on("n1");
    environment["SLURM_JOB_ID"] = "x";
    EXPECT_THAT(refusal(environment), HasSubstr("SLURM_JOB_ID = 'x' is no number"));
    environment = task_on("n1");
    environment["SLURM_STEP_NODELIST"] = "m[1-3]";
    EXPECT_THAT(refusal(environment), HasSubstr("no such node"));
}

// A name that is loopback to its own node: others would look for the leader on their own.
TEST(SlurmJob, ALeaderThatNobodyElseFindsIsSaidAtOnce) {
    auto environment = task_on("p1");
    environment["SLURM_STEP_NODELIST"] = "p[1-2]";
    environment["SLURM_STEP_NUM_TASKS"] = "2";
    EXPECT_THAT(refusal(environment),
                AllOf(HasSubstr("'localhost', the NodeAddr of node 'p1', is "),
                      HasSubstr(" here, at which no other node finds it")));
    environment["SLURM_STEP_NODELIST"] = "q[1-2]";
    environment["SLURMD_NODENAME"] = "q1";
    EXPECT_EQ(refusal(environment), "none");
}

// Oracle: the shell's own word for a program that is not there, or that of scontrol.
TEST(SlurmJob, SaysWhatScontrolSaid) {
    const auto output = ask_scontrol({"show", "no such thing", "it's"});
    ASSERT_FALSE(output.ok());
    EXPECT_THAT(output.error().message,
                HasSubstr("--slurm: timeout 60 scontrol 'show' 'no such thing' 'it'\\''s': "));
}

// Goal: a warning is no node, and is not lost. Method: a scontrol that warns and answers, or warns
// and fails. Oracle: its answer alone; the warning on standard error, or in the error.
TEST(SlurmJob, AWarningOfScontrolIsNoPartOfItsAnswer) {
    const test::TemporaryDirectory directory;
    const std::string script =
        directory.write("scontrol", "#!/bin/sh\necho warned >&2\necho n1\necho n2\nexit $1\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const std::string path = directory.path() + ":" + std::getenv("PATH");
    const ScopedVariable places("PATH", path.c_str());
    ::testing::internal::CaptureStderr();
    const auto output = ask_scontrol({"0"});
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "afdd: --slurm: scontrol: warned\n");
    ASSERT_TRUE(output.ok()) << output.error().message;
    EXPECT_EQ(output.value(), "n1\nn2\n");
    EXPECT_THAT(ask_scontrol({"1"}).error().message, HasSubstr("scontrol '1': warned"));
}

}  // namespace
}  // namespace afd::daemon
