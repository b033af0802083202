// SPDX-License-Identifier: Apache-2.0
//
// afd-op: the operators by name, on safetensors files, for any language that writes these.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "ops/fused_moe/plan/feature_matrix.h"
#include "ops/tensor/parallel.h"
#include "tools/afd-op/describe.h"
#include "tools/afd-op/moe_plan_command.h"
#include "tools/afd-op/registry.h"

namespace afd::tools {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Options {
    std::string name;
    std::string in_path;
    std::string out_path;
    std::string attributes = "{}";
    bool is_reference = false;
    bool is_json = false;
};

int print_error(const Error& error) {
    std::fprintf(stderr, "afd-op: %s\n", error.message.c_str());
    return error.code == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

Result<const RegisteredOperator*> find(const std::string& name) {
    if (const RegisteredOperator* found = find_operator(name)) return found;
    return Error{Code::kInvalidArgument, "there is no operator " + name + "; see: afd-op list"};
}

int list() {
    for (const RegisteredOperator& entry : operators()) {
        std::printf("%-26s %s\n",
                    std::string(entry.spec->name).c_str(),
                    std::string(entry.spec->summary).c_str());
    }
    return EXIT_SUCCESS;
}

Result<> describe(const Options& options) {
    AFD_ASSIGN(const RegisteredOperator* found, find(options.name));
    const std::string text = options.is_json ? describe_as_json(*found->spec).dump(1) + "\n"
                                             : describe_as_text(*found->spec);
    std::fputs(text.c_str(), stdout);
    return {};
}

Result<> plan(const MoePlanOptions& options) {
    AFD_ASSIGN(const std::string table, moe_plan_table(options));
    std::fputs(table.c_str(), stdout);
    return {};
}

Result<> run(const Options& options) {
    AFD_ASSIGN(const RegisteredOperator* found, find(options.name));
    const auto attributes = nlohmann::json::parse(options.attributes, nullptr, false);
    if (attributes.is_discarded()) {
        return Error{Code::kInvalidArgument, "--attrs is no JSON: " + options.attributes};
    }
    TensorMap inputs;
    if (!options.in_path.empty()) {
        AFD_ASSIGN(inputs, read_tensors(options.in_path));
    }
    ops::SerialParallel serial;
    AFD_ASSIGN(OperatorCall call,
               OperatorCall::make(
                   *found->spec, std::move(inputs), attributes, options.is_reference, serial));
    AFD_TRY(found->run(call));
    return write_tensors(options.out_path, call.outputs());
}

int main(int argc, char** argv) {
    CLI::App app("Runs the operators on safetensors files.", "afd-op");
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
    CLI::App* run_command = app.add_subcommand("run", "Inputs from a file, outputs to a file");
    run_command->add_option("name", options.name)->required();
    run_command->add_option("--in", options.in_path, "Inputs, named as `describe` names them");
    run_command->add_option("--out", options.out_path, "Outputs, and what changed in place")
        ->required();
    run_command->add_option("--attrs", options.attributes, "Attributes as a JSON object");
    run_command->add_flag("--reference", options.is_reference, "Plain loops, not the kernels");
    app.footer(
        "Example: afd-op run moe_finalize_routing --in in.safetensors --out out.safetensors \\\n"
        "             --attrs '{\"drop_pad_mode\": 2}'\n"
        "Exit codes: 0 ok, 1 a file cannot be read or written, 2 refused (the line says why)");
    CLI11_PARSE(app, argc, argv);
    if (list_command->parsed()) return list();
    if (matrix_command->parsed()) {
        std::fputs(ops::feature_matrix().c_str(), stdout);
        return EXIT_SUCCESS;
    }
    const Result<> done = describe_command->parsed() ? describe(options)
                          : plan_command->parsed()   ? plan(plan_options)
                                                     : run(options);
    return done.ok() ? EXIT_SUCCESS : print_error(done.error());
}

}  // namespace
}  // namespace afd::tools

int main(int argc, char** argv) {
    return afd::tools::main(argc, argv);
}
