// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_form.h"

#include "proto/handover.pb.h"

namespace afd::daemon {

namespace {

// What a later program added to an enum would be a cast to no value of it here.
bool is_known(const handover::AnswerForm& form) {
    return form.reasoning() <= static_cast<uint32_t>(model::kReasoningSyntaxLast) &&
           form.tools() <= static_cast<uint32_t>(model::kToolSyntaxLast) &&
           form.num_prompts() <= GenerationCall::kChoicesMax;
}

void set_parameters(const model::ParameterTypes& types, handover::AnswerForm& form) {
    for (const auto& [name, parameters] : types.kinds()) {
        handover::FunctionParameters& function = *form.add_functions();
        function.set_name(name);
        function.set_other_kinds(parameters.others);
        for (const auto& [parameter, kinds] : parameters.listed) {
            handover::ParameterKinds& added = *function.add_parameters();
            added.set_name(parameter);
            added.set_kinds(kinds);
        }
    }
}

std::shared_ptr<const model::ParameterTypes> types_of(const handover::AnswerForm& form) {
    model::ParameterTypes::Kinds kinds;
    for (const handover::FunctionParameters& function : form.functions()) {
        model::ParameterTypes::FunctionKinds& of_function = kinds[function.name()];
        // An earlier program has not looked at them.
        if (function.other_kinds() != 0) of_function.others = function.other_kinds();
        for (const handover::ParameterKinds& parameter : function.parameters()) {
            of_function.listed[parameter.name()] = parameter.kinds();
        }
    }
    return std::make_shared<const model::ParameterTypes>(std::move(kinds));
}

}  // namespace

std::string HttpForm::text() const {
    const GenerationCall& call = answer_->call;
    handover::AnswerForm form;
    form.set_id(answer_->head.id);
    form.set_created(answer_->head.created);
    form.set_model(answer_->head.model);
    form.set_system_fingerprint(answer_->head.system_fingerprint);
    form.set_is_chat(call.is_chat);
    form.set_reasoning(static_cast<uint32_t>(call.output.reasoning));
    form.set_tools(static_cast<uint32_t>(call.output.tools));
    if (call.output.types) set_parameters(*call.output.types, form);
    form.set_num_prompts(static_cast<uint32_t>(call.prompts.size()));
    form.set_num_choices(call.num_choices);
    form.set_is_stream(call.is_stream);
    form.set_include_usage(call.include_usage);
    form.set_continuous_usage(call.continuous_usage);
    form.set_has_logprobs(call.has_logprobs);
    form.set_top_logprobs(call.top_logprobs);
    form.set_return_token_ids(call.return_token_ids);
    form.set_keeps_special(call.keeps_special);
    form.set_resumable_ms(call.resumable_ms);
    form.set_hides_output(call.hides_output);
    form.set_ends_behind_call(call.ends_behind_call);
    form.set_must_call(call.output.must_call);
    form.set_follows_thought(call.output.follows_thought);
    return form.SerializeAsString();
}

Result<std::shared_ptr<const SessionForm>> HttpForm::read(std::string_view text) {
    handover::AnswerForm form;
    if (!form.ParseFromArray(text.data(), static_cast<int>(text.size())) || !is_known(form)) {
        return Error{Code::kDataLoss, "the form of the answer is not known here"};
    }
    AnswerForm answer;
    answer.head = {.id = form.id(),
                   .created = form.created(),
                   .model = form.model(),
                   .system_fingerprint = form.system_fingerprint()};
    GenerationCall& call = answer.call;
    call.is_chat = form.is_chat();
    call.output = {static_cast<model::ReasoningSyntax>(form.reasoning()),
                   static_cast<model::ToolSyntax>(form.tools()),
                   types_of(form),
                   form.must_call(),
                   form.follows_thought()};
    call.prompts.resize(form.num_prompts());
    call.num_choices = form.num_choices();
    call.is_stream = form.is_stream();
    call.include_usage = form.include_usage();
    call.continuous_usage = form.continuous_usage();
    call.has_logprobs = form.has_logprobs();
    call.top_logprobs = form.top_logprobs();
    call.return_token_ids = form.return_token_ids();
    call.keeps_special = form.keeps_special();
    call.resumable_ms = form.resumable_ms();
    call.hides_output = form.hides_output();
    call.ends_behind_call = form.ends_behind_call();
    return std::shared_ptr<const SessionForm>(
        std::make_shared<const HttpForm>(std::make_shared<const AnswerForm>(std::move(answer))));
}

}  // namespace afd::daemon
