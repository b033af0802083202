// SPDX-License-Identifier: Apache-2.0
#include "ops/record/operator_check.h"

#include <algorithm>
#include <charconv>

#include "schedule/context/schedule_context.h"

namespace afd::ops {
namespace {

bool is_optional(TensorRole role) {
    return role == TensorRole::kOptionalInput || role == TensorRole::kOptionalOutput ||
           role == TensorRole::kOptionalInPlace;
}

// Cuts the next part of `text`, up to `separator` or the end.
std::string_view next_part(std::string_view& text, std::string_view separator) {
    const size_t at = text.find(separator);
    const std::string_view part = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view() : text.substr(at + separator.size());
    return part;
}

bool is_name(std::string_view dimension) {
    return dimension != "?" && dimension.find_first_of("+*") == std::string_view::npos &&
           (dimension[0] < '0' || dimension[0] > '9');
}

std::string_view inside(std::string_view form) {
    return form.substr(1, form.size() - 2);  // Without the brackets.
}

size_t rank_of(std::string_view form) {
    const std::string_view dimensions = inside(form);
    return dimensions.empty()
               ? 0
               : 1 + static_cast<size_t>(std::count(dimensions.begin(), dimensions.end(), ','));
}

std::string dtype_text(const DTypeSet& dtypes) {
    std::string text;
    for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
        if (!dtypes.has(static_cast<DType>(i))) continue;
        if (!text.empty()) text += ", ";
        text += name_of(static_cast<DType>(i));
    }
    return text;
}

// "?" is a word of the records.
std::string form_text(std::string_view forms) {
    std::string text(forms);
    for (size_t at = text.find('?'); at != std::string::npos; at = text.find('?', at)) {
        text.replace(at, 1, "any size");
    }
    return text;
}

std::string choices_text(std::span<const int64_t> choices) {
    std::string text;
    for (const int64_t choice : choices) {
        if (!text.empty()) text += ", ";
        text += std::to_string(choice);
    }
    return text;
}

}  // namespace

std::string shape_text(std::span<const size_t> shape) {
    std::string text = "[";
    for (size_t axis = 0; axis < shape.size(); ++axis) {
        if (axis > 0) text += ", ";
        text += std::to_string(shape[axis]);
    }
    return text + "]";
}

std::string excerpt(std::string_view text) {
    constexpr size_t kMost = 60;
    std::string line(text.substr(0, kMost));
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
    std::replace_if(line.begin(), line.end(), is_control, ' ');
    return text.size() <= kMost ? line : line + "...";
}

const AttributeSpec* OperatorSpec::find_attribute(std::string_view attribute) const {
    const auto found = std::find_if(attributes.begin(), attributes.end(), [&](const auto& spec) {
        return spec.name == attribute;
    });
    return found == attributes.end() ? nullptr : &*found;
}

const TensorSpec* OperatorSpec::find_tensor(std::string_view tensor) const {
    const auto found = std::find_if(
        tensors.begin(), tensors.end(), [&](const auto& spec) { return spec.name == tensor; });
    return found == tensors.end() ? nullptr : &*found;
}

void OperatorCheck::fail(std::string message) {
    // The first fault is the one to mend; later ones are often its consequences.
    if (error_.empty()) error_ = std::string(spec_.name) + ": " + std::move(message);
}

size_t OperatorCheck::place_of(std::string_view name) const {
    size_t place = 0;
    while (place < spec_.attributes.size() && spec_.attributes[place].name != name) ++place;
    for (size_t i = 0; place >= spec_.attributes.size() && i < spec_.tensors.size(); ++i, ++place) {
        if (spec_.tensors[i].name == name) break;
    }
    AFD_ASSERT(place < spec_.attributes.size() + spec_.tensors.size() && place < kEntriesMax,
               "no entry %s",
               std::string(name).c_str());
    return place;
}

void OperatorCheck::leave_out(std::string_view name) {
    done_.set(place_of(name));
}

void OperatorCheck::attributes() {
    for (const AttributeSpec& spec : spec_.attributes) {
        if (!done_[place_of(spec.name)]) judge(spec);
    }
}

void OperatorCheck::tensors() {
    for (const TensorSpec& spec : spec_.tensors) {
        if (!done_[place_of(spec.name)]) judge(spec);
    }
}

void OperatorCheck::attribute(std::string_view name) {
    const AttributeSpec* spec = spec_.find_attribute(name);
    AFD_ASSERT(spec != nullptr, "no attribute %s", std::string(name).c_str());
    judge(*spec);
}

void OperatorCheck::tensor(std::string_view name) {
    const TensorSpec* spec = spec_.find_tensor(name);
    AFD_ASSERT(spec != nullptr, "no tensor %s", std::string(name).c_str());
    judge(*spec);
}

void OperatorCheck::judge(const AttributeSpec& spec) {
    if (spec.member.of == nullptr) return;
    switch (spec.member.type) {
        case MemberType::kInt:
            return attribute(spec.name, member<int64_t>(spec.member));
        case MemberType::kFloat:
            return attribute(spec.name, double{member<float>(spec.member)});
        case MemberType::kBool:
            return attribute(spec.name, int64_t{member<bool>(spec.member)});
        case MemberType::kString:
            return attribute(spec.name, member<std::string_view>(spec.member));
        default:
            return;  // A list of integers: the operator's own business.
    }
}

void OperatorCheck::judge(const TensorSpec& spec) {
    if (spec.member.of == nullptr) return;
    const auto bytes = [](const auto& span) {
        return make_tensor<const void>(span.data(), DType::kUint8, {span.size()});
    };
    switch (spec.member.type) {
        case MemberType::kInput:
            return tensor(spec.name, member<ConstTensorView>(spec.member));
        case MemberType::kTensor:
            return tensor(spec.name, member<TensorView>(spec.member));
        case MemberType::kContext: {
            const auto* context = member<const schedule::ScheduleContext*>(spec.member);
            if (context == nullptr) return tensor(spec.name, ConstTensorView());
            return tensor(spec.name,
                          make_tensor<const void>(context, DType::kInt8, {sizeof(*context)}));
        }
        case MemberType::kBytes:
            return tensor(spec.name, bytes(member<std::span<std::byte>>(spec.member)));
        case MemberType::kConstBytes:
            return tensor(spec.name, bytes(member<std::span<const std::byte>>(spec.member)));
        default:
            return;  // Windows of several workers: the operator's own business.
    }
}

void OperatorCheck::attribute(std::string_view name, int64_t value) {
    done_.set(place_of(name));
    const AttributeSpec* spec = spec_.find_attribute(name);
    AFD_ASSERT(spec != nullptr, "no attribute %s", std::string(name).c_str());
    if (!spec->choices.empty()) {
        const auto& choices = spec->choices;
        if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
            fail(fmt::format("{} is {}; allowed are {}", name, value, choices_text(choices)));
        }
    } else {
        require(value >= spec->least && value <= spec->most,
                "{} is {}; allowed are {} to {}",
                with(name, value, spec->least, spec->most));
    }
    bindings_[num_bindings_++] = {spec->name, value, spec->name};
}

void OperatorCheck::attribute(std::string_view name, double value) {
    done_.set(place_of(name));
    AFD_ASSERT(spec_.find_attribute(name) != nullptr, "no such attribute");
    require(value == value, "{} is not a number", with(name));
}

void OperatorCheck::attribute(std::string_view name, std::string_view value) {
    done_.set(place_of(name));
    const AttributeSpec* spec = spec_.find_attribute(name);
    AFD_ASSERT(spec != nullptr, "no attribute %s", std::string(name).c_str());
    if (std::find(spec->words.begin(), spec->words.end(), value) != spec->words.end()) return;
    std::string allowed;
    for (const std::string_view word : spec->words) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(word);
    }
    fail(std::string(name) + " is \"" + excerpt(value) + "\"; allowed are " + allowed);
}

void OperatorCheck::bind(std::string_view name, size_t size) {
    AFD_ASSERT(num_bindings_ < kBindingsMax, "%zu names", num_bindings_);
    bindings_[num_bindings_++] = {name, static_cast<int64_t>(size), name};
}

void OperatorCheck::tensor(std::string_view name, const ConstTensorView& view) {
    done_.set(place_of(name));
    const TensorSpec* spec = spec_.find_tensor(name);
    AFD_ASSERT(spec != nullptr, "no tensor %s", std::string(name).c_str());
    // An output that is off has no elements, and so has an input that is left out.
    if (is_optional(spec->role) && view.num_elements() == 0) return;
    if (!view.given()) {
        return fail(fmt::format("{} is missing; it must be {}", name, form_text(spec->shape)));
    }
    if (!spec->dtypes.has(view.dtype)) {
        return fail(fmt::format("{} has dtype {}; allowed are {}",
                                name,
                                name_of(view.dtype),
                                dtype_text(spec->dtypes)));
    }
    require(view.is_contiguous(), "{} is not contiguous; copy it first", with(name));
    AFD_ASSERT(num_given_ < kTensorsMax, "%zu tensors", num_given_);
    given_[num_given_++] = {spec, view};
}

const OperatorCheck::Binding* OperatorCheck::find(std::string_view name) const {
    const auto* end = bindings_ + num_bindings_;
    const auto* found =
        std::find_if(bindings_, end, [&](const Binding& binding) { return binding.name == name; });
    return found == end ? nullptr : found;
}

std::optional<int64_t> OperatorCheck::evaluate(std::string_view dimension) const {
    int64_t sum = 0;
    while (!dimension.empty()) {
        std::string_view product_text = next_part(dimension, "+");
        int64_t product = 1;
        while (!product_text.empty()) {
            const std::string_view factor = next_part(product_text, "*");
            int64_t value = 0;
            const auto [end, code] =
                std::from_chars(factor.data(), factor.data() + factor.size(), value);
            if (code != std::errc() || end != factor.data() + factor.size()) {
                const Binding* binding = find(factor);
                if (binding == nullptr) return std::nullopt;
                value = binding->value;
            }
            // No tensor is as large, so the comparison fails as it should.
            if (__builtin_mul_overflow(product, value, &product)) return INT64_MAX;
        }
        if (__builtin_add_overflow(sum, product, &sum)) return INT64_MAX;
    }
    return sum;
}

bool OperatorCheck::matches(std::string_view form,
                            const Given& given,
                            bool bind_names,
                            bool bind_all) {
    if (rank_of(form) != given.view.rank) return false;
    std::string_view dimensions = inside(form);
    for (size_t axis = 0; axis < given.view.rank; ++axis) {
        const std::string_view dimension = next_part(dimensions, ", ");
        if (dimension == "?") continue;
        const auto size = static_cast<int64_t>(given.view.shape[axis]);
        if (bind_names && is_name(dimension) && find(dimension) == nullptr) {
            AFD_ASSERT(num_bindings_ < kBindingsMax, "%zu names", num_bindings_);
            bindings_[num_bindings_++] = {dimension, size, given.spec->name};
        }
        const std::optional<int64_t> wanted = evaluate(dimension);
        // When all names are known, a sum or product that still has no value is a slip of the
        // record, and would let any size pass.
        AFD_ASSERT(wanted || !bind_all,
                   "%s: nothing gives %s a value",
                   std::string(spec_.name).c_str(),
                   std::string(dimension).c_str());
        if (wanted && *wanted != size) return false;
    }
    return true;
}

// " with N = 3 (x), K = 4": the values that the names of all forms stand for, and who said so.
std::string OperatorCheck::text_of_names(std::string_view forms) const {
    std::string text;
    std::string seen = ",";
    constexpr std::string_view kEnds = "[], +*|";
    for (size_t begin = 0; begin < forms.size();) {
        const size_t end = std::min(forms.find_first_of(kEnds, begin), forms.size());
        const std::string_view name = forms.substr(begin, end - begin);
        begin = end + 1;
        const Binding* binding = name.empty() ? nullptr : find(name);
        const std::string mark = "," + std::string(name) + ",";
        if (binding == nullptr || seen.find(mark) != std::string::npos) continue;
        seen += std::string(name) + ",";
        text += fmt::format("{}{} = {}", text.empty() ? " with " : ", ", name, binding->value);
        if (binding->from != name) text += " (" + std::string(binding->from) + ")";
    }
    return text;
}

Result<> OperatorCheck::finish() {
    // Twice: a name may get its value from a tensor that comes later. Only tensors with a single
    // form bind names, since which form is meant is known only with the names.
    for (const bool last : {false, true}) {
        for (size_t i = 0; i < num_given_ && error_.empty(); ++i) {
            const Given& given = given_[i];
            const TensorSpec& spec = *given.spec;
            std::string_view forms = spec.shape;
            const bool is_single = forms.find(" | ") == std::string_view::npos;
            bool any = false;
            while (!forms.empty() && !any) {
                const std::string_view form = next_part(forms, " | ");
                any = matches(form, given, is_single || last, last);
            }
            if (any) continue;
            fail(fmt::format("{} has shape {}; it must be {}{}",
                             spec.name,
                             shape_text(given.view),
                             form_text(spec.shape),
                             text_of_names(spec.shape)));
        }
    }
    if (error_.empty()) return {};
    return Error{Code::kInvalidArgument, error_};
}

size_t OperatorCheck::size(std::string_view name) const {
    const Binding* binding = find(name);
    AFD_ASSERT(binding != nullptr, "no tensor gave %s a size", std::string(name).c_str());
    return static_cast<size_t>(binding->value);
}

}  // namespace afd::ops
