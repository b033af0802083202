// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/resolved_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "daemon/config/origin_list.h"
#include "daemon/config/wire_choices.h"
#include "daemon/options/config_options.h"
#include "ops/format/numeric_class.h"
#include "proto/did_you_mean.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

ConfigSources with_model() {
    ConfigSources sources;
    sources.flags["model"] = "/models/tiny";
    return sources;
}

std::string error_of(const ConfigSources& sources) {
    const Result<ResolvedConfig> resolved = resolve_config(sources);
    return resolved.ok() ? "resolved without an error" : resolved.error().message;
}

std::string error_of_file(const std::string& text) {
    const test::TemporaryDirectory directory;
    ConfigSources sources = with_model();
    sources.config_file = directory.write("afd.toml", text);
    const std::string message = error_of(sources);
    // The path differs at every run.
    const size_t name = message.find("afd.toml");
    return name == std::string::npos ? message : message.substr(name);
}

TEST(Config, OverUcxPromptsGoInTwoPhasesIfSomebodyAsks) {
    Config config;
    config.topology = Topology::kDisaggregated;
    config.dispatch = Dispatch::kAuto;
    config.transport = Transport::kSharedMemory;
    EXPECT_TRUE(config.two_phase());
    config.transport = Transport::kUcx;
    EXPECT_FALSE(config.two_phase());
    config.two_phase_threshold = 64;
    EXPECT_TRUE(config.two_phase());
    config.dispatch = Dispatch::kWindow;
    EXPECT_FALSE(config.two_phase());
    config.two_phase_threshold = 0;
    config.dispatch = Dispatch::kTwoPhase;
    EXPECT_TRUE(config.two_phase());
}

TEST(Config, FlagsWinOverEnvironmentOverFileOverDemoOverDefault) {
    const test::TemporaryDirectory directory;
    ConfigSources sources;
    sources.demo = true;
    sources.demo_model = "/models/demo";
    sources.config_file = directory.write("afd.toml",
                                          "attention_workers = 3\n"
                                          "ffn_workers = 3\n"
                                          "micro_batches = 3\n");
    sources.environment = {{"AFD_FFN_WORKERS", "4"}, {"AFD_MICRO_BATCHES", "4"}};
    sources.flags = {{"micro_batches", "5"}};

    const Result<ResolvedConfig> resolved = resolve_config(sources);

    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    const ResolvedConfig& r = resolved.value();
    EXPECT_EQ(r.config.micro_batches, 5);
    EXPECT_EQ(r.origins.at("micro_batches"), "--micro-batches");
    EXPECT_EQ(r.config.ffn_workers, 4);
    EXPECT_EQ(r.origins.at("ffn_workers"), "AFD_FFN_WORKERS");
    EXPECT_EQ(r.config.attention_workers, 3);
    EXPECT_THAT(r.origins.at("attention_workers"), EndsWith("afd.toml:1"));
    EXPECT_EQ(r.config.instance, "demo");
    EXPECT_EQ(r.origins.at("instance"), "--demo");
    EXPECT_EQ(r.config.gather_us, 200);
    EXPECT_EQ(r.origins.at("gather_us"), "default");
}

// Goal: --demo serves the demo as instance demo, whatever a shell has set for another instance.
// Oracle: the same values from a flag and from a file that is named count.
TEST(Config, TheDemoIsTheDemoWhateverTheEnvironment) {
    ConfigSources sources;
    sources.demo = true;
    sources.demo_model = "/models/demo";
    sources.environment = {
        {"AFD_INSTANCE", "mine"}, {"AFD_MODEL", "/models/mine"}, {"AFD_FFN_WORKERS", "3"}};
    const Result<ResolvedConfig> demo = resolve_config(sources);
    ASSERT_TRUE(demo.ok()) << demo.error().message;
    EXPECT_EQ(demo.value().config.instance, "demo");
    EXPECT_EQ(demo.value().origins.at("instance"), "--demo");
    EXPECT_EQ(demo.value().config.model, "/models/demo");
    EXPECT_EQ(demo.value().origins.at("model"), "--demo");
    EXPECT_EQ(demo.value().config.ffn_workers, 3u);

    sources.flags = {{"instance", "typed"}};
    const test::TemporaryDirectory directory;
    sources.config_file = directory.write("afd.toml", "model = '/models/named'\n");
    const Result<ResolvedConfig> changed = resolve_config(sources);
    ASSERT_TRUE(changed.ok()) << changed.error().message;
    EXPECT_EQ(changed.value().config.instance, "typed");
    EXPECT_EQ(changed.value().config.model, "/models/named");
}

TEST(Config, EveryDefaultIsValidAndHasADescription) {
    const Result<ResolvedConfig> resolved = resolve_config(with_model());
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    for (const ConfigOption& option : config_options()) {
        EXPECT_FALSE(std::string(option.description).empty()) << option.name;
    }
}

// What is no regular file is refused at once: a directory was ignored, and a pipe waited for ever.
TEST(Config, FileMustBeARegularOne) {
    const test::TemporaryDirectory directory;
    ConfigSources sources = with_model();
    sources.config_file = directory.path();
    EXPECT_EQ(error_of(sources),
              "configuration file '" + directory.path() +
                  "': it is a directory; it must be a regular file");
    sources.config_file = directory.path("pipe");
    ASSERT_EQ(::mkfifo(sources.config_file.c_str(), 0600), 0);
    EXPECT_THAT(error_of(sources), HasSubstr("it is a pipe; it must be a regular file"));
    sources.config_file.clear();
    sources.environment["AFD_CONFIG"] = "/dev/null";
    EXPECT_THAT(error_of(sources), HasSubstr("'/dev/null': it is a device"));
}

// Goal: nobody else decides what afdd runs. Oracle: the message says the mode and how to mend it;
// as soon as that is done, the file is read, and its full path is known.
TEST(Config, FileThatOthersCanWriteIsRefused) {
    namespace fs = std::filesystem;
    const test::TemporaryDirectory directory;
    ConfigSources sources = with_model();
    const std::string file = directory.write("afd.toml", "ffn_workers = 2\n");
    sources.default_files = {file};
    for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
        fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write | others);
        EXPECT_THAT(error_of(sources), HasSubstr("so others can write it"));
        EXPECT_THAT(error_of(sources), HasSubstr("chmod go-w '" + file + "'"));
    }
    EXPECT_THAT(error_of(sources), HasSubstr("its mode is 0602"));
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    const Result<ResolvedConfig> resolved = resolve_config(sources);
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    EXPECT_EQ(resolved.value().config.ffn_workers, 2u);
    EXPECT_EQ(resolved.value().config_file, file);
    EXPECT_EQ(resolve_config(with_model()).value().config_file, "");
}

TEST(Config, UnknownKeyIsNamedWithItsPlaceAndTheNearestKey) {
    EXPECT_EQ(error_of_file("ffn_workers = 2\nmicro_bathces = 2\n"),
              "afd.toml:2:1: unknown key 'micro_bathces' (did you mean 'micro_batches'?)");
}

TEST(Config, ValueOfAnotherTypeIsNamedWithItsPlace) {
    EXPECT_EQ(
        error_of_file("ffn_workers = \"2\"\n"),
        "afd.toml:1:15: ffn_workers must be an integer from 1 to 256, written without quotes");
    EXPECT_EQ(error_of_file("topology = 1\n"),
              "afd.toml:1:12: topology must be one of disaggregated, colocated, written in quotes");
}

TEST(Config, SyntaxErrorIsNamedWithLineAndColumn) {
    EXPECT_THAT(error_of_file("ffn_workers = 2\nmicro_batches = = 2\n"),
                HasSubstr("afd.toml:2:17: "));
}

TEST(Config, ValueOutOfBoundsSaysWhatIsAllowedAndWhereItCameFrom) {
    ConfigSources sources = with_model();
    sources.environment["AFD_ATTENTION_WORKERS"] = "1025";
    EXPECT_EQ(error_of(sources),
              "attention_workers = '1025': must be an integer from 1 to 1024 (from "
              "AFD_ATTENTION_WORKERS)");
    for (const char* text : {"", "-1", "2x", "99999999999999999999", " 2"}) {
        sources = with_model();
        sources.flags["attention_workers"] = text;
        EXPECT_THAT(error_of(sources), HasSubstr("must be an integer from 1 to 1024")) << text;
    }
}

TEST(Config, UnknownChoiceSuggestsTheNearest) {
    ConfigSources sources = with_model();
    sources.flags["ffn_policy"] = "gahter";
    EXPECT_EQ(error_of(sources),
              "ffn_policy = 'gahter': must be one of any, gather, all, groups (did you mean "
              "'gather'?) (from "
              "--ffn-policy)");
}

// Every word of every choice becomes a value of its own, and is written back as it was read.
TEST(Config, EveryChoiceIsReadAndWrittenBack) {
    for (const ConfigOption& option : config_options()) {
        for (const std::string& word : option.choices) {
            Config config;
            ASSERT_TRUE(set_option(option, word, config).ok()) << option.name << " = " << word;
            EXPECT_EQ(option_literal(option, config), '"' + word + '"') << option.name;
        }
    }
}

// Goal: whatever class ops/ has can be configured; whether the processor can run it is asked later.
TEST(Config, EveryNumericClassCanBeNamed) {
    for (const ops::NumericClass numeric_class : ops::numeric_classes()) {
        ConfigSources sources = with_model();
        sources.flags["numeric_class"] = ops::name_of(numeric_class);
        const Result<ResolvedConfig> resolved = resolve_config(sources);
        ASSERT_TRUE(resolved.ok()) << resolved.error().message;
        EXPECT_EQ(resolved.value().config.numeric_class, ops::name_of(numeric_class));
    }
    ConfigSources sources = with_model();
    sources.flags["numeric_class"] = "avx1024";
    EXPECT_THAT(error_of(sources),
                HasSubstr("must be one of auto, portable, avx2, avx512, avx512-bf16"));
}

TEST(Config, ChoicesBecomeTheValuesThatTheirNamesSay) {
    ConfigSources sources = with_model();
    sources.flags = {{"topology", "colocated"},
                     {"dispatch", "window"},
                     {"shared_experts", "attention"},
                     {"dispatch_dtype", "int8"},
                     {"kv_dtype", "fp8"},
                     {"int4_rows", "int8"},
                     {"ffn_policy", "all"}};
    sources.flags.merge(with_model().flags);
    const Config config = resolve_config(sources).value().config;
    EXPECT_EQ(config.topology, Topology::kColocated);
    EXPECT_EQ(config.dispatch, Dispatch::kWindow);
    EXPECT_EQ(config.shared_experts, SharedExperts::kAttention);
    EXPECT_EQ(config.dispatch_dtype, schedule::RowDtype::kInt8);
    EXPECT_EQ(config.kv_dtype, ops::KvDtype::kFp8);
    EXPECT_EQ(config.int4_rows, ops::Int4Rows::kInt8);
    EXPECT_EQ(config.ffn_policy, schedule::FfnPolicy::kAll);
    EXPECT_FALSE(resolve_config(with_model()).value().config.dispatch_dtype) << "auto";
}

TEST(Config, AGroupHasAtMostAllSessions) {
    ConfigSources sources = with_model();
    sources.flags["ffn_policy"] = "groups";
    sources.flags["attention_workers"] = "4";
    sources.flags["ffn_sync_group_size"] = "4";
    EXPECT_EQ(resolve_config(sources).value().config.ffn_policy, schedule::FfnPolicy::kGroups);
    sources.flags["ffn_sync_group_size"] = "5";
    EXPECT_EQ(error_of(sources), "ffn_sync_group_size = 5: must be at most attention_workers = 4");
}

// A Welcome of another build: what is not known is refused, not taken for the first choice.
TEST(Config, ChoicesTravelAndUnknownOnesAreRefused) {
    for (const auto dtype :
         {schedule::RowDtype::kBf16, schedule::RowDtype::kInt8, schedule::RowDtype::kFp8}) {
        EXPECT_EQ(from_wire(to_wire(dtype)).value(), dtype);
    }
    EXPECT_EQ(from_wire(to_wire(schedule::FfnPolicy::kGroups)).value(),
              schedule::FfnPolicy::kGroups);
    EXPECT_EQ(from_wire(to_wire(SharedExperts::kFfn)).value(), SharedExperts::kFfn);
    EXPECT_EQ(from_wire(control::ROUTER_UNSPECIFIED).error().message,
              "afdd's Welcome has router 0, which is not known here");
    EXPECT_EQ(from_wire(static_cast<control::RowDtype>(9)).error().message,
              "afdd's Welcome has dispatch_dtype 9, which is not known here");
    EXPECT_EQ(from_wire(static_cast<control::FfnPolicy>(9)).error().code, Code::kDataLoss);
}

TEST(Config, InstanceNameWithADashIsRefused) {
    ConfigSources sources = with_model();
    sources.flags["instance"] = "a-b";
    EXPECT_THAT(error_of(sources), HasSubstr("must be 1 to 32 of a-z, 0-9 and '_'"));
}

// It stands in answers, which are JSON.
TEST(Config, ANameOfTheModelThatIsNoTextIsRefused) {
    for (const char* name : {"a\xff", "a\nb", "\x7f"}) {
        ConfigSources sources = with_model();
        sources.flags["http_model"] = name;
        EXPECT_THAT(error_of(sources), HasSubstr("must be UTF-8 without control characters"));
    }
}

TEST(Config, OriginsAreThoseThatABrowserSays) {
    for (const char* list :
         {"chat.example", "https://chat.example/", "https://a.b,", "*,http://a"}) {
        ConfigSources sources = with_model();
        sources.flags["http_origins"] = list;
        EXPECT_THAT(error_of(sources), HasSubstr("origins with commas between, such as")) << list;
    }
    const OriginList list = OriginList::parse("https://Chat.example , app://x-1").value();
    EXPECT_TRUE(list.has("https://chat.example"));
    EXPECT_TRUE(list.has("app://x-1"));
    EXPECT_FALSE(list.has("http://chat.example"));
    EXPECT_FALSE(list.has("null"));
    EXPECT_FALSE(OriginList::parse("").value().has("https://chat.example"));
    EXPECT_TRUE(OriginList::parse("*").value().has("https://any.example:8443"));
}

TEST(Config, MissingModelSaysWhatToDo) {
    EXPECT_THAT(error_of({}), HasSubstr("--model DIR"));
}

TEST(Config, ContradictingTimesAreRefused) {
    ConfigSources sources = with_model();
    sources.flags["restart_first_ms"] = "9000";
    EXPECT_THAT(error_of(sources), HasSubstr("must be at least restart_first_ms = 9000"));
}

TEST(Config, ARouterInFfnWorkersNeedsFfnWorkers) {
    ConfigSources sources = with_model();
    sources.flags["router"] = "ffn";
    EXPECT_EQ(resolve_config(sources).value().config.router, schedule::RouterPlacement::kFfn);
    sources.flags["topology"] = "colocated";
    EXPECT_EQ(error_of(sources),
              "router = 'ffn': topology = 'colocated' has no FFN workers; leave router at "
              "'attention' or choose topology = 'disaggregated'");
}

TEST(Config, LongPromptsGoInTwoPhasesWhoeverRoutes) {
    ConfigSources sources = with_model();
    sources.flags["router"] = "ffn";
    for (const std::string dispatch : {"auto", "two_phase", "window"}) {
        sources.flags["dispatch"] = dispatch;
        EXPECT_EQ(resolve_config(sources).value().config.two_phase(), dispatch != "window");
    }
}

TEST(Config, RowsThatFfnWorkersRouteByMustBeBf16) {
    ConfigSources sources = with_model();
    sources.flags["router"] = "ffn";
    EXPECT_TRUE(resolve_config(sources).ok());
    sources.flags["dispatch_dtype"] = "fp8";
    EXPECT_EQ(error_of(sources),
              "dispatch_dtype = 'fp8': with router = 'ffn' FFN workers choose by the rows that "
              "they get, which must be bf16; leave dispatch_dtype at 'auto'");
}

TEST(Config, TheResidualStreamIsFp32WhoeverRoutes) {
    ConfigSources sources = with_model();
    for (const std::string router : {"attention", "ffn"}) {
        sources.flags["router"] = router;
        EXPECT_EQ(resolve_config(sources).value().config.residual, model::ResidualType::kFp32);
    }
    sources.flags["residual"] = "bf16";
    EXPECT_EQ(resolve_config(sources).value().config.residual, model::ResidualType::kBf16);
}

TEST(Config, NamedFileThatIsMissingIsAnErrorAndADefaultOneIsNot) {
    ConfigSources sources = with_model();
    sources.default_files = {"/nonexistent/afd.toml"};
    EXPECT_TRUE(resolve_config(sources).ok());
    sources.config_file = "/nonexistent/afd.toml";
    EXPECT_THAT(error_of(sources), HasSubstr("/nonexistent/afd.toml"));
}

TEST(Config, DescriptionReadBackGivesTheSameConfiguration) {
    const test::TemporaryDirectory directory;
    ConfigSources sources = with_model();
    sources.flags["model"] = "/models/a \"quoted\" \\ name,\r\n\t\x01 and what else there is: ü";
    sources.flags["ffn_workers"] = "7";
    sources.flags["spawn"] = "false";
    const Result<ResolvedConfig> first = resolve_config(sources);
    ASSERT_TRUE(first.ok()) << first.error().message;

    ConfigSources again;
    again.config_file = directory.write("afd.toml", describe_config(first.value()));
    const Result<ResolvedConfig> second = resolve_config(again);

    ASSERT_TRUE(second.ok()) << second.error().message;
    for (const ConfigOption& option : config_options()) {
        EXPECT_EQ(option_literal(option, first.value().config),
                  option_literal(option, second.value().config))
            << option.name;
    }
}

// Goal: no path to a peer that is gone stays for ever. Oracle: what each list has besides UCX's own
// shared memory, which does not tell.
TEST(Config, UcxHasATransportThatTellsWhenAPeerIsGone) {
    const auto with_transports = [&](const char* transports) {
        ConfigSources sources = with_model();
        sources.flags["ucx_transports"] = transports;
        return sources;
    };
    for (const char* silent : {"sm", "sm,self", "posix,sysv,cma", ""}) {
        EXPECT_THAT(error_of(with_transports(silent)),
                    HasSubstr("must have a transport that tells when a peer is gone"))
            << silent;
    }
    for (const char* telling : {"tcp", "tcp,sm,self", "rc_x", "self,ud", "all", "^sm"}) {
        EXPECT_TRUE(resolve_config(with_transports(telling)).ok()) << telling;
    }
}

// Goal: what cannot be said to a worker is refused at the start, with the name of the option, and
// does not end in a Welcome that nobody can read.
TEST(Config, TextsThatWorkersAreToldMustBeUtf8) {
    const std::pair<const char*, const char*> wrong[] = {
        {"model", "/models/\xff"},
        {"ffn_scheduler", "/lib/\xff.so"},
        {"ucx_transports", "tcp,\xff"},
        {"ucx_devices", "eth\xff"},
        {"ucx_host", "\xff"},
    };
    for (const auto& [option, text] : wrong) {
        ConfigSources sources = with_model();
        sources.flags[option] = text;
        const std::string message = error_of(sources);
        EXPECT_THAT(message, HasSubstr(option));
        EXPECT_THAT(message, HasSubstr("must be UTF-8"));
    }
}

TEST(Config, AHostThatJoinsIsNotNamedAsTheOneThatLeads) {
    const auto joining_as = [](const std::string& name) {
        ConfigSources sources = with_model();
        sources.flags["join"] = "10.0.0.1:7411";
        sources.flags["transport"] = "ucx";
        sources.flags["cluster_dir"] = "/cluster";
        sources.flags["host_name"] = name;
        return sources;
    };
    for (const char* wrong : {"leader", "local", "ca", "Node1"}) {
        EXPECT_THAT(error_of(joining_as(wrong)),
                    HasSubstr("host_name = '" + std::string(wrong) + "': "));
        // Without `join` it means nothing, and one configuration may be for all hosts.
        ConfigSources sources = with_model();
        sources.flags["host_name"] = wrong;
        EXPECT_TRUE(resolve_config(sources).ok()) << wrong;
    }
    EXPECT_TRUE(resolve_config(joining_as("node1")).ok());
}

// A worker could say it only once it runs, as a failure of its own.
TEST(Config, TheHostOfUcxIsAnAddress) {
    for (const char* wrong : {"foo", "", "10.0.0", "10.0.0.1:80", "[::1]"}) {
        ConfigSources sources = with_model();
        sources.flags["ucx_host"] = wrong;
        EXPECT_THAT(error_of(sources), HasSubstr("must be an address of this host")) << wrong;
    }
    for (const char* wrong : {"0.0.0.0", "::", "224.0.0.1", "ff02::1"}) {
        ConfigSources sources = with_model();
        sources.flags["ucx_host"] = wrong;
        EXPECT_THAT(error_of(sources), HasSubstr("must be an address of this host")) << wrong;
    }
    for (const char* right : {"auto", "10.0.0.1", "fd00::1", "::1"}) {
        ConfigSources sources = with_model();
        sources.flags["ucx_host"] = right;
        const Result<ResolvedConfig> resolved = resolve_config(sources);
        EXPECT_TRUE(resolved.ok()) << resolved.error().message;
    }
}

TEST(DidYouMean, SuggestsOnlyNearWords) {
    const std::vector<std::string> words = {"gather", "any", "all"};
    EXPECT_EQ(nearest_word("gathr", words), "gather");
    EXPECT_EQ(nearest_word("gahter", words), "gather");
    EXPECT_EQ(nearest_word("completely_else", words), "");
    EXPECT_EQ(did_you_mean("xyzzy_long_word", words), "");
}

}  // namespace
}  // namespace afd::daemon
