// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/chat/chat_template.h"
#include "model/chat/chatml_template.h"
#include "model/chat/deepseek_templates.h"
#include "model/chat/turn_templates.h"
#include "model/checkpoint/json_document.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr size_t kChatFileBytesMax = size_t{256} << 20;
constexpr const char* kKnown =
    "deepseek_v2, deepseek_v3, deepseek_r1, deepseek_v31, chatml, qwen3, mixtral, olmoe, glm4, "
    "kimi, phi3";

using Chosen = std::unique_ptr<const ChatTemplate>;

// System messages that templates have of their own.
constexpr std::array kDefaultSystems = {
    std::string_view("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    std::string_view("You are Kimi, an AI assistant created by Moonshot AI."),
    std::string_view("You are a helpful assistant provided by Moonshot-AI."),
    std::string_view("You are a helpful assistant."),
    std::string_view("You are a helpful assistant"),
};

std::string default_system(const std::string& jinja) {
    for (const std::string_view system : kDefaultSystems) {
        if (jinja.find(system) != std::string::npos) return std::string(system);
    }
    return {};
}

// By words that only that family's template has.
Chosen choose(const ChatFiles& files) {
    const std::string& jinja = files.chat_template;
    const auto has = [&jinja](std::string_view word) {
        return jinja.find(word) != std::string::npos;
    };
    if (has("<|im_middle|>")) return std::make_unique<KimiTemplate>(default_system(jinja));
    if (has("<|im_start|>")) {
        return std::make_unique<ChatmlTemplate>(
            default_system(jinja), has("enable_thinking"), has("<tool_response>"));
    }
    if (has("<｜Assistant｜>")) {
        if (has("thinking")) return std::make_unique<DeepSeekV31Template>();
        return std::make_unique<DeepSeekV3Template>(has("<｜Assistant｜><think>"));
    }
    if (has("[gMASK]")) return std::make_unique<GlmTemplate>();
    if (has("[INST]"))
        return std::make_unique<MixtralTemplate>(has("' [INST]") || has("\" [INST]"));
    const bool has_roles = has("<|user|>") && has("<|assistant|>");
    if (has_roles && has("<|end|>")) return std::make_unique<PhiTemplate>(files.eos_token);
    if (has_roles && has("eos_token")) {
        return std::make_unique<OlmoeTemplate>(has("bos_token") ? files.bos_token : "",
                                               files.eos_token);
    }
    const bool has_bos = files.bos_token == "<｜begin▁of▁sentence｜>";
    if (has("'User: '") && has("'Assistant:'") && has_bos) {
        return std::make_unique<DeepSeekV2Template>();
    }
    return nullptr;
}

// A special token is a string, or an object with its content.
std::string token_text(const nlohmann::json& config, const char* key) {
    const auto at = config.find(key);
    if (at == config.end()) return {};
    if (at->is_string()) return at->get<std::string>();
    if (!at->is_object()) return {};
    const auto content = at->find("content");
    return content != at->end() && content->is_string() ? content->get<std::string>() : "";
}

// A string, or a list of named ones of which "default" counts.
std::string template_text(const nlohmann::json& config) {
    const auto at = config.find("chat_template");
    if (at == config.end()) return {};
    if (at->is_string()) return at->get<std::string>();
    if (!at->is_array()) return {};
    for (const auto& entry : *at) {
        if (entry.is_object() && token_text(entry, "name") == "default") {
            return token_text(entry, "template");
        }
    }
    return {};
}

}  // namespace

Result<ChatFiles> ChatFiles::read(const std::string& directory) {
    ChatFiles files;
    const std::string path = directory + "/tokenizer_config.json";
    const auto text = read_text_file(path, kChatFileBytesMax);
    if (!text.ok() && text.error().code != Code::kNotFound) return text.error();
    if (text.ok()) {
        const auto config = nlohmann::json::parse(text.value(), nullptr, false);
        if (!config.is_object()) return data_loss("{}: is not a JSON object", with(path));
        files.chat_template = template_text(config);
        files.bos_token = token_text(config, "bos_token");
        files.eos_token = token_text(config, "eos_token");
    }
    // Newer checkpoints have it in a file of its own, which counts.
    const auto jinja = read_text_file(directory + "/chat_template.jinja", kChatFileBytesMax);
    if (jinja.ok()) files.chat_template = jinja.value();
    return files;
}

Result<std::unique_ptr<const ChatTemplate>> choose_chat_template(const ChatFiles& files,
                                                                 const Tokenizer& tokenizer) {
    if (files.chat_template.empty()) {
        return not_found(
            "this model has no chat template (chat_template in tokenizer_config.json, "
            "or chat_template.jinja): send a prompt instead of messages");
    }
    Chosen chosen = choose(files);
    if (chosen == nullptr) {
        return unimplemented(
            "the chat template of this model is none of those that are built in ({}): render the "
            "conversation yourself, and send it as a prompt",
            with(kKnown));
    }
    if (!tokenizer.added_token(chosen->end_token())) {
        return unimplemented(
            "the chat template {} ends an answer with {}, which is no token of this tokenizer",
            with(chosen->name(), chosen->end_token()));
    }
    return chosen;
}

}  // namespace afd::model
