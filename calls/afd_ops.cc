// SPDX-License-Identifier: Apache-2.0
#include "calls/afd_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "calls/call_attributes.h"
#include "calls/describe.h"
#include "calls/error_parameter.h"
#include "calls/machine_limits.h"
#include "calls/registry.h"
#include "ops/tensor/workspace.h"
#include "proto/failure.h"
#include "threads/thread_pool.h"

using afd::Code;
using afd::Error;
using afd::Result;
using afd::calls::CallOptions;
using afd::calls::NamedTensor;
using afd::calls::OperatorCall;
using afd::calls::RegisteredOperator;
using afd::ops::DType;
using afd::ops::TensorView;

struct afd_ops_call {
    afd::ops::SerialParallel serial;
    std::optional<afd::threads::ThreadPool> pool;
    std::unique_ptr<OperatorCall> call;
};

namespace {

static_assert(AFD_OPS_RANK_MAX == TensorView::kRankMax);
static_assert(AFD_OPS_ALIGNMENT == afd::ops::kWorkspaceAlignment);
static_assert(AFD_OPS_BF16 == static_cast<int>(DType::kBf16));
static_assert(AFD_OPS_BOOL == static_cast<int>(DType::kBool));
static_assert(AFD_OPS_FAILED_PRECONDITION == static_cast<int>(Code::kFailedPrecondition));

constexpr uint32_t kThreadsMax = 1024;

template <size_t size>
void copy_text(std::string_view text, char (&into)[size]) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(into, text.data(), length);
    into[length] = '\0';
}

int report(const Error& failure, const afd::ops::OperatorSpec* spec, afd_ops_error* error) {
    if (error != nullptr) {
        error->code = static_cast<int32_t>(failure.code);
        copy_text(failure.message, error->text);
        copy_text(spec == nullptr ? "" : afd::calls::error_parameter(*spec, failure.message),
                  error->parameter);
    }
    return static_cast<int>(failure.code);
}

Result<NamedTensor> view_of(const afd_ops_tensor& tensor) {
    const auto refuse = [&](const char* field, int64_t value, const char* allowed) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: {} is {}; {}", tensor.name, field, value, allowed)};
    };
    if (tensor.dtype < AFD_OPS_BF16 || tensor.dtype > AFD_OPS_BOOL) {
        return refuse("dtype", tensor.dtype, "allowed are 0 to 7, see afd_ops_dtype");
    }
    if (tensor.rank < 0 || tensor.rank > AFD_OPS_RANK_MAX) {
        return refuse("rank", tensor.rank, "operators take at most 4 dimensions");
    }
    TensorView view{.data = tensor.data,
                    .dtype = static_cast<DType>(tensor.dtype),
                    .rank = static_cast<size_t>(tensor.rank)};
    std::copy_n(tensor.shape, view.rank, view.shape.begin());
    std::copy_n(tensor.strides, view.rank, view.strides.begin());
    const auto is_zero = [](uint64_t stride) { return stride == 0; };
    if (std::all_of(tensor.strides, tensor.strides + view.rank, is_zero)) {
        uint64_t stride = 1;
        for (size_t axis = view.rank; axis-- > 0;) {
            view.strides[axis] = stride;
            // What wraps is refused when the call is made.
            stride *= view.shape[axis];
        }
    }
    return NamedTensor{tensor.name, view};
}

Result<CallOptions> options_of(const afd_ops_options& given, afd_ops_call& call) {
    CallOptions options;
    options.is_reference = given.is_reference != 0;
    options.memory_max = given.memory_max;
    for (size_t i = 0; i < given.num_outputs_given; ++i) {
        if (given.outputs_given[i] == nullptr) {
            return afd::invalid_argument(
                "outputs_given[{}] is null; it must be the name of an output", afd::with(i));
        }
        options.outputs_given.emplace_back(given.outputs_given[i]);
    }
    if (given.numeric_class != nullptr) {
        AFD_TRY(afd::calls::set_numeric_class(given.numeric_class, options));
    }
    if (given.num_threads > kThreadsMax) {
        return afd::invalid_argument("num_threads is {}; allowed are 0 to {}",
                                     afd::with(given.num_threads, kThreadsMax));
    }
    options.parallel = &call.serial;
    if (given.num_threads > 1) options.parallel = &call.pool.emplace(given.num_threads);
    return options;
}

Result<> make_call(const RegisteredOperator& entry,
                   const char* attributes,
                   std::span<const afd_ops_tensor> tensors,
                   const afd_ops_options& given,
                   afd_ops_call& call) {
    AFD_ASSIGN(const nlohmann::json json, afd::calls::parse_attributes(*entry.spec, attributes));
    std::vector<NamedTensor> views;
    for (const afd_ops_tensor& tensor : tensors) {
        AFD_ASSIGN(const NamedTensor view, view_of(tensor));
        views.push_back(view);
    }
    AFD_ASSIGN(const CallOptions options, options_of(given, call));
    AFD_ASSIGN(call.call, OperatorCall::make(entry, std::move(views), json, options));
    return {};
}

// Every record as text, made once.
const std::map<std::string, std::string, std::less<>>& records() {
    static const auto* const made = [] {
        auto* texts = new std::map<std::string, std::string, std::less<>>;
        for (const RegisteredOperator& entry : afd::calls::operators()) {
            (*texts)[std::string(entry.spec->name)] =
                afd::calls::describe_as_json(*entry.spec).dump(1);
        }
        return texts;
    }();
    return *made;
}

}  // namespace

const char* afd_ops_version() {
    return AFD_VERSION;
}

const char* afd_ops_name(size_t index) {
    const auto all = afd::calls::operators();
    return index < all.size() ? all[index].spec->name.data() : nullptr;
}

const char* afd_ops_describe(const char* name) {
    try {
        const auto found = records().find(std::string_view(name));
        return found == records().end() ? nullptr : found->second.c_str();
    } catch (const std::exception&) {  // No memory. They are made by the next call.
        return nullptr;
    }
}

const char* afd_ops_class(size_t index) {
    const auto all = afd::ops::supported_numeric_classes();
    return index < all.size() ? name_of(all[index]).data() : nullptr;
}

int afd_ops_query(const char* name,
                  const char* attributes,
                  const afd_ops_tensor* tensors,
                  size_t num_tensors,
                  const afd_ops_options* options,
                  afd_ops_call** call,
                  afd_ops_error* error) {
    const afd::ops::OperatorSpec* spec = nullptr;
    try {
        const RegisteredOperator* entry = afd::calls::find_operator(name);
        if (entry == nullptr) return report(afd::calls::no_such_operator(name), nullptr, error);
        spec = entry->spec;
        auto made = std::make_unique<afd_ops_call>();
        const Result<> done = make_call(*entry,
                                        attributes == nullptr ? "{}" : attributes,
                                        {tensors, num_tensors},
                                        options == nullptr ? afd_ops_options{} : *options,
                                        *made);
        if (!done.ok()) return report(done.error(), spec, error);
        *call = made.release();
        return AFD_OPS_OK;
    } catch (const std::exception& failure) {  // Of the standard library: no memory, no threads.
        return report({Code::kResourceExhausted, failure.what()}, spec, error);
    }
}

size_t afd_ops_workspace_bytes(const afd_ops_call* call) {
    return call->call->workspace_bytes();
}

double afd_ops_operations(const afd_ops_call* call) {
    return call->call->operations();
}

size_t afd_ops_num_outputs(const afd_ops_call* call) {
    return call->call->outputs().size();
}

afd_ops_tensor afd_ops_output(const afd_ops_call* call, size_t index) {
    const NamedTensor& output = call->call->outputs()[index];
    afd_ops_tensor made{.name = output.name.data(),
                        .data = nullptr,
                        .dtype = static_cast<int32_t>(output.view.dtype),
                        .rank = static_cast<int32_t>(output.view.rank),
                        .shape = {},
                        .strides = {}};
    std::copy_n(output.view.shape.begin(), output.view.rank, made.shape);
    std::copy_n(output.view.strides.begin(), output.view.rank, made.strides);
    return made;
}

int afd_ops_run(afd_ops_call* call,
                void* const* outputs,
                void* workspace,
                size_t workspace_bytes,
                afd_ops_error* error) {
    OperatorCall& made = *call->call;
    try {
        if (workspace_bytes < made.workspace_bytes()) {
            return report(afd::invalid_argument(
                              "{}: workspace_bytes is {}; the call needs {}",
                              afd::with(made.spec().name, workspace_bytes, made.workspace_bytes())),
                          &made.spec(),
                          error);
        }
        if (reinterpret_cast<uintptr_t>(workspace) % AFD_OPS_ALIGNMENT != 0) {
            return report(afd::invalid_argument(
                              "{}: workspace begins at an address that is no multiple of {}",
                              afd::with(made.spec().name, AFD_OPS_ALIGNMENT)),
                          &made.spec(),
                          error);
        }
        const Result<> done = made.run({outputs, made.outputs().size()},
                                       {static_cast<std::byte*>(workspace), workspace_bytes});
        return done.ok() ? AFD_OPS_OK : report(done.error(), &made.spec(), error);
    } catch (const std::exception& failure) {  // The reference allocates.
        return report({Code::kResourceExhausted, failure.what()}, &made.spec(), error);
    }
}

void afd_ops_machine_limits(uint32_t num_threads,
                            double* bytes_per_second,
                            double* operations_per_second) {
    *bytes_per_second = 0;
    *operations_per_second = 0;
    try {
        afd::threads::ThreadPool threads(std::clamp(num_threads, 1u, kThreadsMax));
        const afd::calls::MachineLimits limits =
            afd::calls::machine_limits(afd::ops::best_numeric_class(), threads);
        *bytes_per_second = limits.bytes_per_second;
        *operations_per_second = limits.operations_per_second;
    } catch (const std::exception&) {  // No memory, or no threads: nothing is known.
    }
}

void afd_ops_free(afd_ops_call* call) {
    delete call;
}
