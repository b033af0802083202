// SPDX-License-Identifier: Apache-2.0
//
// Goal: who gives an option that does nothing hears of it, and nobody else does. Method:
// configurations as resolve_config() makes them of flags, also where it has no UCX. Oracle:
// sentences written by hand, from where each option is read.
#include "daemon/options/unused_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/options/config_options.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Options = std::map<std::string, std::string>;

ResolvedConfig resolved_from(const Options& flags) {
    ResolvedConfig resolved;
    for (const ConfigOption& option : config_options()) {
        const auto given = flags.find(option.name);
        const bool is_given = given != flags.end();
        const std::string text = is_given ? given->second : option.default_text;
        const Result<> set = set_option(option, text, resolved.config);
        EXPECT_TRUE(set.ok()) << set.error().message;
        resolved.origins[option.name] = is_given ? flag_name(option.name) : "default";
    }
    return resolved;
}

std::vector<std::string> unused_with(const Options& flags) {
    return unused_options(resolved_from(flags));
}

TEST(UnusedOptions, AreNamedWithWhatTheyLack) {
    EXPECT_THAT(
        unused_with({{"http_keys", "keys"}}),
        ElementsAre("http_keys (from --http-keys) has no effect without http = ADDRESS:PORT"));
    EXPECT_THAT(
        unused_with({{"cluster_listen", "127.0.0.1:1"}, {"cluster_dir", "d"}}),
        ElementsAre("cluster_listen (from --cluster-listen) has no effect without attention_hosts "
                    "or ffn_hosts",
                    "cluster_dir (from --cluster-dir) has no effect without attention_hosts or "
                    "ffn_hosts"));
    EXPECT_THAT(
        unused_with({{"host_name", "b"}, {"leave_with_leader", "true"}}),
        ElementsAre("host_name (from --host-name) has no effect without join = HOST:PORT",
                    "leave_with_leader (from --leave-with-leader) has no effect without join = "
                    "HOST:PORT"));
    const Options network = {{"ucx_transports", "rc"},
                             {"ucx_devices", "lo"},
                             {"ucx_host", "127.0.0.1"},
                             {"host_ports", "7420-7499"},
                             {"ucx_neighbours", "ucx"}};
    EXPECT_THAT(
        unused_with(network),
        ElementsAre("ucx_transports (from --ucx-transports) has no effect without transport = ucx",
                    "ucx_devices (from --ucx-devices) has no effect without transport = ucx",
                    "ucx_host (from --ucx-host) has no effect without transport = ucx",
                    "host_ports (from --host-ports) has no effect without transport = ucx",
                    "ucx_neighbours (from --ucx-neighbours) has no effect without transport = "
                    "ucx"));
}

TEST(UnusedOptions, OfLongPromptsAreNamedWithWhyNoneGoesInTwoPhases) {
    const Options all = {{"prefill_tokens_max", "512"},
                         {"two_phase_threshold", "64"},
                         {"two_phase_block", "64"},
                         {"two_phase_memory_max", "20000"}};
    const auto with = [&](Options more) {
        more.insert(all.begin(), all.end());
        return unused_with(more);
    };
    const auto each = [](const std::string& why) {
        return ElementsAre(
            "prefill_tokens_max (from --prefill-tokens-max) has no effect " + why,
            "two_phase_threshold (from --two-phase-threshold) has no effect " + why,
            "two_phase_block (from --two-phase-block) has no effect " + why,
            "two_phase_memory_max (from --two-phase-memory-max) has no effect " + why);
    };
    EXPECT_THAT(with({}), IsEmpty());
    EXPECT_THAT(with({{"dispatch", "window"}}), each("with dispatch = window"));
    EXPECT_THAT(with({{"topology", "colocated"}}), each("with topology = colocated"));
    EXPECT_THAT(
        with({{"dispatch", "two_phase"}}),
        ElementsAre("two_phase_threshold (from --two-phase-threshold) has no effect with dispatch "
                    "= two_phase"));
    EXPECT_THAT(unused_with({{"dispatch", "two_phase"}, {"topology", "colocated"}}),
                ElementsAre("dispatch (from --dispatch) has no effect with topology = colocated"));
}

// Another value than the default.
std::string other_value(const ConfigOption& option) {
    if (!option.choices.empty()) {
        return option.choices[option.choices.front() == option.default_text ? 1 : 0];
    }
    if (option.name == std::string("ffn_scheduler")) return "/lib.so";
    if (option.name == std::string("expert_placement")) return "replicas:2";
    if (option.name == std::string("replica_choice")) return "host";
    if (option.name == std::string("ffn_hosts")) return "b";
    return option.default_text == std::string("false") ? "true" : "7";
}

// Goal: no option of what a colocated worker lacks is forgotten, also a new one. Oracle: the names
// of the options, but for those that a colocated worker obeys or that are refused there.
TEST(UnusedOptions, AreThoseOfFfnWorkersWhereThereAreNone) {
    const std::set<std::string> heeded = {"router", "dispatch_dtype"};
    size_t num_named = 0;
    for (const OptionTopic& topic : config_topics()) {
        for (const ConfigOption& option : topic.options) {
            const std::string name = option.name;
            const bool is_about_ffn =
                topic.title == std::string("Experts") || name.starts_with("ffn_");
            if (!is_about_ffn || heeded.contains(name)) continue;
            const Options given = {{name, other_value(option)}, {"topology", "colocated"}};
            EXPECT_THAT(unused_with(given),
                        ElementsAre(name + " (from " + flag_name(name) +
                                    ") has no effect with topology = colocated"));
            ++num_named;
        }
    }
    EXPECT_GE(num_named, 12u);
}

TEST(UnusedOptions, OfWaitsDependOnWhoDecides) {
    EXPECT_THAT(unused_with({{"gather_us", "7"}}), IsEmpty());
    EXPECT_THAT(unused_with({{"gather_us", "7"}, {"ffn_policy", "any"}}),
                ElementsAre("gather_us (from --gather-us) has no effect with ffn_policy = any"));
    EXPECT_THAT(unused_with({{"ffn_sync_group_size", "2"}}),
                ElementsAre("ffn_sync_group_size (from --ffn-sync-group-size) has no effect "
                            "without ffn_policy = groups"));
    Options groups = {{"ffn_sync_group_size", "2"}, {"ffn_policy", "groups"}, {"gather_us", "7"}};
    EXPECT_THAT(unused_with(groups), IsEmpty());
    groups["ffn_scheduler"] = "/lib.so";
    EXPECT_THAT(unused_with(groups),
                ElementsAre("ffn_policy (from --ffn-policy) has no effect beside ffn_scheduler",
                            "ffn_sync_group_size (from --ffn-sync-group-size) has no effect beside "
                            "ffn_scheduler"));
}

TEST(UnusedOptions, DependOnTheTransport) {
    const Options ucx = {{"transport", "ucx"}, {"ucx_devices", "lo"}, {"two_phase_block", "64"}};
    EXPECT_THAT(unused_with(ucx),
                ElementsAre("two_phase_block (from --two-phase-block) has no effect over ucx "
                            "without dispatch = two_phase or two_phase_threshold"));
    Options asked = ucx;
    asked["two_phase_threshold"] = "64";
    EXPECT_THAT(unused_with(asked), IsEmpty());
    Options led = asked;
    led.insert({{"ffn_hosts", "b"},
                {"cluster_listen", "127.0.0.1:1"},
                {"cluster_dir", "d"},
                {"host_ports", "7420-7499"},
                // Of a file that is that of all hosts.
                {"host_name", "b"},
                {"leave_with_leader", "true"}});
    EXPECT_THAT(unused_with(led), IsEmpty());
}

// What is the leader's has no effect on a host that joins, and docs/hosts.md says so.
TEST(UnusedOptions, OfAHostThatJoinsAreNotNamed) {
    EXPECT_THAT(unused_with({{"transport", "ucx"},
                             {"join", "127.0.0.1:1"},
                             {"cluster_dir", "d"},
                             {"host_name", "b"},
                             {"leave_with_leader", "true"},
                             {"http_keys", "keys"},
                             {"cluster_listen", "127.0.0.1:1"},
                             {"two_phase_block", "64"}}),
                IsEmpty());
}

TEST(UnusedOptions, AreOnesThatSomebodyGave) {
    EXPECT_THAT(unused_with({}), IsEmpty());
    EXPECT_THAT(unused_with({{"http", "127.0.0.1:1"}, {"http_keys", "keys"}}), IsEmpty());
    // The default does nothing anyway.
    EXPECT_THAT(unused_with({{"http_keys", ""}, {"ucx_devices", "auto"}, {"http_open", "false"}}),
                IsEmpty());
    // All tasks of a job have one command line.
    ResolvedConfig resolved = resolved_from({{"cluster_listen", "127.0.0.1:1"}});
    EXPECT_EQ(unused_options(resolved).size(), 1u);
    resolved.origins["cluster_listen"] = "--slurm";
    EXPECT_THAT(unused_options(resolved), IsEmpty());
}

// Goal: what --check-config prints can be a file, which says nothing that is not meant. Oracle: one
// line more is named.
TEST(UnusedOptions, AreNoneInAFileThatDescribesTheDefaults) {
    const auto unused_of_file = [](const std::string& file) {
        ConfigSources sources;
        sources.flags["model"] = "/models/tiny";
        sources.config_file = file;
        const Result<ResolvedConfig> resolved = resolve_config(sources);
        EXPECT_TRUE(resolved.ok()) << resolved.error().message;
        return unused_options(resolved.value());
    };
    const test::TemporaryDirectory directory;
    const std::string described = describe_config(resolved_from({{"model", "/models/tiny"}}));
    EXPECT_THAT(unused_of_file(directory.write("described.toml", described)), IsEmpty());
    const std::string file = directory.write("afd.toml", "\nhttp_model = 'm'\n");
    EXPECT_THAT(
        unused_of_file(file),
        ElementsAre("http_model (from " + file + ":2) has no effect without http = ADDRESS:PORT"));
}

}  // namespace
}  // namespace afd::daemon
