// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/run_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "calls/call_attributes.h"
#include "calls/machine_limits.h"
#include "calls/registry.h"
#include "model/safetensors/whole_file.h"
#include "threads/thread_pool.h"
#include "tools/afd-op/tensor_file.h"
#include "tools/number_option.h"

namespace afd::tools {
namespace {

using calls::NamedTensor;
using calls::OperatorCall;

Result<TensorMap> read_inputs(const std::string& path) {
    if (path.empty()) return TensorMap();
    return read_tensors(path);
}

// Of the operator, not of a file: the request is to be mended, whatever the operator calls it.
Error refusal(Error error) {
    error.code = Code::kInvalidArgument;
    return error;
}

// Outputs as the operator wrote them, and what it changed in place; both are moved.
TensorMap results_of(const OperatorCall& call, std::vector<Tensor>& outputs, TensorMap& inputs) {
    TensorMap results;
    for (size_t i = 0; i < outputs.size(); ++i) {
        results.emplace(call.outputs()[i].name, std::move(outputs[i]));
    }
    for (const NamedTensor& tensor : call.in_place()) {
        const std::string name(tensor.name);
        results.emplace(name, std::move(inputs.at(name)));
    }
    return results;
}

// What the operator changes in place, as it was given.
class GivenInPlace {
  public:
    explicit GivenInPlace(const OperatorCall& call) {
        for (const NamedTensor& tensor : call.in_place()) {
            const size_t count = tensor.view.num_elements() * size_of(tensor.view.dtype);
            const std::span given(static_cast<std::byte*>(tensor.view.data), count);
            tensors_.push_back({given, {given.begin(), given.end()}});
        }
    }

    void restore() const {
        for (const auto& [tensor, given] : tensors_) {
            std::copy(given.begin(), given.end(), tensor.begin());
        }
    }

  private:
    std::vector<std::pair<std::span<std::byte>, std::vector<std::byte>>> tensors_;
};

// Of `repeat` runs on the same memory, each with what is in place as it was given: an operator may
// refuse what a run left there. Errors: the operator's.
Result<double> median_seconds(OperatorCall& call,
                              const GivenInPlace& given,
                              std::span<void* const> memory,
                              std::span<std::byte> workspace,
                              uint32_t repeat) {
    std::vector<double> seconds(repeat);
    for (double& each : seconds) {
        given.restore();
        const auto start = std::chrono::steady_clock::now();
        AFD_TRY(call.run(memory, workspace));
        each = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeat / 2, seconds.end());
    return seconds[repeat / 2];
}

void print_rates(const OperatorCall& call,
                 double median_s,
                 uint32_t repeat,
                 const calls::CallOptions& options) {
    const calls::MachineLimits limits =
        calls::machine_limits(options.numeric_class, *options.parallel);
    const auto bytes = static_cast<double>(call.tensor_bytes());
    std::printf("median of %u: %.1f us\n", repeat, median_s * 1e6);
    std::printf("%.0f bytes: %.2f GB/s, %.0f%% of copying memory (%.2f GB/s)\n",
                bytes,
                bytes / median_s / 1e9,
                100 * bytes / median_s / limits.bytes_per_second,
                limits.bytes_per_second / 1e9);
    if (call.operations() == 0) return;
    std::printf("%.3g operations: %.1f G/s, %.0f%% of matrices in the cache (%.1f G/s)\n",
                call.operations(),
                call.operations() / median_s / 1e9,
                100 * call.operations() / median_s / limits.operations_per_second,
                limits.operations_per_second / 1e9);
}

}  // namespace

CLI::App* add_run_command(CLI::App& app, RunOptions& options) {
    CLI::App* command = app.add_subcommand("run", "Inputs from a file, outputs to a file");
    command->add_option("name", options.name)->required();
    command->add_option("--in", options.in_path, "Inputs, named as `describe` names them");
    command->add_option("--out", options.out_path, "Outputs, and what changed in place")
        ->required();
    command->add_option("--attrs", options.attributes, "Attributes as a JSON object");
    command->add_flag("--reference",
                      options.is_reference,
                      "Plain loops, not the kernels; `describe` says which bits the two share");
    command->add_option("--numeric-class",
                        options.numeric_class,
                        "portable, avx2, avx512, avx512-bf16, amx, or auto: the processor's best; "
                        "the reference takes subnormals as the class does that is named");
    command->add_option("--threads", options.num_threads, "1 to 1024")
        ->transform(whole_from(1, 1024));
    command
        ->add_option("--memory-max",
                     options.memory_max,
                     "Bytes that outputs and workspace may need; 0: what is available")
        ->transform(whole_from(0, UINT64_MAX));
    command
        ->add_option("--repeat",
                     options.repeat,
                     "Further runs on the same inputs, whose median time is printed; at most "
                     "1000000")
        ->transform(whole_from(0, 1'000'000));
    return command;
}

Result<> run_operator(const RunOptions& options) {
    const calls::RegisteredOperator* found = calls::find_operator(options.name);
    if (found == nullptr) return refusal(calls::no_such_operator(options.name));
    AFD_ASSIGN(const nlohmann::json attributes,
               calls::parse_attributes(*found->spec, options.attributes));
    threads::ThreadPool threads(options.num_threads);
    calls::CallOptions call_options{.is_reference = options.is_reference,
                                    .memory_max = options.memory_max,
                                    .parallel = &threads};
    if (options.numeric_class != "auto") {
        AFD_TRY(calls::set_numeric_class(options.numeric_class, call_options));
    }
    AFD_ASSIGN(TensorMap inputs, read_inputs(options.in_path));
    std::vector<NamedTensor> views;
    for (const auto& [name, tensor] : inputs) views.push_back({name, tensor.view()});
    auto made = OperatorCall::make(*found, views, attributes, call_options);
    if (!made.ok()) return refusal(made.error());
    OperatorCall& call = *made.value();
    AFD_ASSIGN(model::WholeFile out, model::WholeFile::create(options.out_path));
    std::vector<Tensor> outputs;
    std::vector<void*> memory;
    for (const NamedTensor& output : call.outputs()) {
        const auto& shape = output.view.shape;
        outputs.emplace_back(output.view.dtype,
                             std::vector<size_t>(shape.begin(), shape.begin() + output.view.rank));
        memory.push_back(outputs.back().bytes().data());
    }
    const ops::Workspace workspace(call.workspace_bytes());
    std::optional<GivenInPlace> given;
    if (options.repeat > 0) given.emplace(call);
    const Result<> done = call.run(memory, workspace.bytes());
    if (!done.ok()) return refusal(done.error());
    double median_s = 0;
    if (given) {
        // Before the file: every run writes the same.
        const auto median = median_seconds(call, *given, memory, workspace.bytes(), options.repeat);
        if (!median.ok()) return refusal(median.error());
        median_s = median.value();
    }
    AFD_TRY(write_tensors(std::move(out), results_of(call, outputs, inputs)));
    const std::string how =
        options.is_reference ? "reference"
                             : fmt::format("numeric class {}", name_of(call_options.numeric_class));
    std::printf("%s: %s\n", options.name.c_str(), how.c_str());
    if (given) print_rates(call, median_s, options.repeat, call_options);
    return {};
}

}  // namespace afd::tools
