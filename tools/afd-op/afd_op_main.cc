// SPDX-License-Identifier: Apache-2.0
//
// afd-op: the operators by name, on safetensors files, for any language that writes these.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

#include "calls/describe.h"
#include "calls/registry.h"
#include "ops/fused_moe/plan/feature_matrix.h"
#include "proto/command_words.h"
#include "proto/standard_descriptors.h"
#include "proto/standard_output.h"
#include "proto/usage_error.h"
#include "tools/afd-op/moe_plan_command.h"
#include "tools/afd-op/run_command.h"
#include "tools/afd-op/unknown_words.h"

namespace afd::tools {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Options {
    std::string name;
    bool is_json = false;
};

int print_error(const Error& error) {
    std::fprintf(stderr, "afd-op: %s\n", error.message.c_str());
    return error.code == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

int list() {
    for (const calls::RegisteredOperator& entry : calls::operators()) {
        std::printf("%-26s %s\n",
                    std::string(entry.spec->name).c_str(),
                    std::string(entry.spec->summary).c_str());
    }
    return EXIT_SUCCESS;
}

Result<> describe(const Options& options) {
    const calls::RegisteredOperator* found = calls::find_operator(options.name);
    if (found == nullptr) {
        return Error{Code::kInvalidArgument, calls::no_such_operator(options.name).message};
    }
    const std::string text = options.is_json ? calls::describe_as_json(*found->spec).dump(1) + "\n"
                                             : calls::describe_as_text(*found->spec);
    std::fputs(text.c_str(), stdout);
    return {};
}

Result<> plan(const MoePlanOptions& options) {
    AFD_ASSIGN(const std::string table, moe_plan_table(options));
    std::fputs(table.c_str(), stdout);
    return {};
}

int main(int argc, char** argv) {
    CLI::App app("Runs the operators on safetensors files.", "afd-op");
    app.set_version_flag("--version", "afd-op " AFD_VERSION);
    Options options;
    app.require_subcommand(1);
    CLI::App* list_command = app.add_subcommand("list", "Every operator, one a line");
    CLI::App* describe_command =
        app.add_subcommand("describe", "Attributes, tensors and rules of an operator");
    describe_command->add_option("name", options.name)->required();
    describe_command->add_flag("--json", options.is_json, "As JSON");
    CLI::App* matrix_command = app.add_subcommand(
        "moe-matrix", "What the parts of the fused-MoE framework do together, as Markdown");
    MoePlanOptions plan_options;
    const CLI::App* plan_command = add_moe_plan_command(app, plan_options);
    RunOptions run_options;
    add_run_command(app, run_options);
    app.footer(
        "Example: afd-op run moe_finalize_routing --in in.safetensors --out out.safetensors \\\n"
        "             --attrs '{\"drop_pad_mode\": 2}'\n"
        "Exit codes: 0 ok, 1 a file cannot be read or written, 2 refused, whatever it is\n"
        "            (the line says why)");
    if (argc < 2 || argv[1][0] != '-') {
        const Result<> known = check_command(app, argc < 2 ? "" : argv[1]);
        if (!known.ok()) return print_error(known.error());
    }
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        // An option that is missing may be one that is misspelt.
        const bool may_be_a_slip = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                   dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
        const std::optional<Error> unknown = may_be_a_slip ? unknown_word(app) : std::nullopt;
        if (unknown) return print_error(*unknown);
        return end_parse(app, error, "afd-op", kExitUsage);
    }
    if (list_command->parsed()) return list();
    if (matrix_command->parsed()) {
        std::fputs(ops::feature_matrix().c_str(), stdout);
        return EXIT_SUCCESS;
    }
    const Result<> done = describe_command->parsed() ? describe(options)
                          : plan_command->parsed()   ? plan(plan_options)
                                                     : run_operator(run_options);
    return done.ok() ? EXIT_SUCCESS : print_error(done.error());
}

}  // namespace
}  // namespace afd::tools

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    return afd::end_standard_output("afd-op", afd::tools::main(argc, argv));
}
