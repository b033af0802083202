// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz_operator.h"

#include <fmt/format.h>

#include "calls/registry.h"
#include "tests/fuzz/operator_input.h"

namespace afd::fuzz {
namespace {

constexpr size_t kMessageMax = 700;
constexpr uint64_t kMemoryMax = 16 << 20;
// A call that asks for more is judged and not run: a block table of 64 KiB that names one block
// again and again is a sequence of hundreds of millions of positions, which a right call may have.
// About two seconds under the sanitizers where each position is of a few operations.
constexpr double kOperationsMax = 1 << 24;
const std::byte kFreshByte{ExactBytes::kFresh};

struct Outcome {
    std::string error;  // Empty: done.
    std::vector<std::string> in_place;
};

void check_message(const ops::OperatorSpec& spec, const Error& error) {
    const std::string& text = error.message;
    AFD_ASSERT(text.size() <= kMessageMax && text.find(spec.name) != std::string::npos &&
                   (error.code == Code::kInvalidArgument || error.code == Code::kResourceExhausted),
               "%s",
               text.c_str());
}

// What must not have changed when a call was refused.
void check_untouched(const OperatorInput& given,
                     const std::vector<std::string>& before,
                     const std::string& why) {
    for (size_t i = 0; i < before.size(); ++i) {
        AFD_ASSERT(given.memory[i].copy() == before[i],
                   "%s was written, then: %s",
                   std::string(given.tensors[i].name).c_str(),
                   why.c_str());
    }
}

std::string run(calls::OperatorCall& call, std::vector<ExactBytes>& outputs) {
    std::vector<void*> memory;
    for (const calls::NamedTensor& output : call.outputs()) {
        const size_t size = output.view.num_elements() * size_of(output.view.dtype);
        memory.push_back(outputs.emplace_back(size, 64).span().data());
    }
    const ExactBytes workspace(call.workspace_bytes(), 64);
    const Result<> done = call.run(memory, workspace.span());
    if (done.ok()) return {};
    check_message(call.spec(), done.error());
    for (const ExactBytes& output : outputs) {
        const std::span<std::byte> bytes = output.span();
        AFD_ASSERT(std::count(bytes.begin(), bytes.end(), kFreshByte) ==
                       static_cast<std::ptrdiff_t>(bytes.size()),
                   "an output was written, then: %s",
                   done.error().message.c_str());
    }
    return done.error().message;
}

Outcome call(const calls::RegisteredOperator& entry, const FuzzInput& input, bool is_reference) {
    OperatorInput given(*entry.spec, input);
    std::vector<std::string> before;
    for (const ExactBytes& bytes : given.memory) before.push_back(bytes.copy());
    ops::SerialParallel serial;
    const auto classes = ops::supported_numeric_classes();
    const calls::CallOptions options{.is_reference = is_reference,
                                     .numeric_class = classes[given.options % classes.size()],
                                     .memory_max = kMemoryMax,
                                     .parallel = &serial};
    auto made = calls::OperatorCall::make(entry, given.tensors, given.attributes, options);
    Outcome outcome;
    std::vector<ExactBytes> outputs;
    if (!made.ok()) {
        check_message(*entry.spec, made.error());
        outcome.error = made.error().message;
    } else if (made.value()->operations() > kOperationsMax) {
        outcome.error = "too many operations";
    } else {
        outcome.error = run(*made.value(), outputs);
    }
    if (!outcome.error.empty()) check_untouched(given, before, outcome.error);
    for (const ExactBytes& bytes : given.memory) outcome.in_place.push_back(bytes.copy());
    return outcome;
}

bool moves_only(std::string_view name) {
    return name == "attention_to_ffn" || name == "ffn_worker_batching";
}

}  // namespace

void fuzz_operator(std::string_view name, std::span<const uint8_t> bytes) {
    const calls::RegisteredOperator* entry = calls::find_operator(name);
    AFD_ASSERT(entry != nullptr, "no operator %s", std::string(name).c_str());
    const FuzzInput input(bytes.data(), bytes.size());
    const Outcome fast = call(*entry, input, false);
    const Outcome reference = call(*entry, input, true);
    if (reference.error.find("there is one implementation") != std::string::npos) return;
    // The reference needs no workspace.
    if (fast.error.find("memory_max is") != std::string::npos) return;
    AFD_ASSERT(fast.error == reference.error,
               "fast: '%s'; reference: '%s'",
               fast.error.c_str(),
               reference.error.c_str());
    AFD_ASSERT(!moves_only(name) || fast.in_place == reference.in_place,
               "%s",
               "the reference writes other bytes");
}

}  // namespace afd::fuzz
