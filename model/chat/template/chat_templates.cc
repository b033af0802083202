// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/chat/message/chat_text.h"
#include "model/chat/template/chat_template.h"
#include "model/chat/template/chatml_template.h"
#include "model/chat/template/deepseek_templates.h"
#include "model/chat/template/glm_template.h"
#include "model/chat/template/harmony_template.h"
#include "model/chat/template/kimi_template.h"
#include "model/chat/template/minimax_template.h"
#include "model/chat/template/mistral_templates.h"
#include "model/chat/template/qwen_coder_template.h"
#include "model/chat/template/turn_templates.h"
#include "model/json/json_document.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr size_t kChatFileBytesMax = size_t{256} << 20;
constexpr const char* kKnown =
    "deepseek_v2, deepseek_v3, deepseek_r1, deepseek_v31, chatml, qwen3, qwen3_thinking, "
    "qwen3_coder, harmony, mixtral, mistral_v3, olmoe, glm4, glm47, kimi, kimi_thinking, "
    "kimi_k25, phi3, dots1, minimax, gigachat3";

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

// The words of a Jinja text. A line break in it may be written out, or as \n.
class Words {
  public:
    explicit Words(const std::string& jinja) : jinja_(jinja) {}
    bool has(std::string_view word) const { return jinja_.find(word) != std::string::npos; }
    bool has_lines(std::string word) const {
        if (has(word)) return true;
        for (size_t at = 0; (at = word.find('\n', at)) != std::string::npos; at += 2) {
            word.replace(at, 1, "\\n");
        }
        return has(word);
    }
    // What stands between two words, without blanks at its ends; empty: they are not there.
    std::string between(std::string_view before, std::string_view behind) const {
        const size_t begin = jinja_.find(before);
        if (begin == std::string::npos) return {};
        const size_t end = jinja_.find(behind, begin + before.size());
        if (end == std::string::npos) return {};
        const std::string_view text = jinja_;
        return std::string(strip(text.substr(begin + before.size(), end - begin - before.size())));
    }

  private:
    const std::string& jinja_;
};

// In the form that describes all that a schema says of a parameter; others have a text of their own
// about how to call.
bool is_qwen_coder(const Words& words) {
    return words.has("render_extra_keys") && words.has("<function=example_function_name>") &&
           words.has_lines("\n\n# Tools\n\nYou have access to the following functions:\n\n") &&
           words.has("an inner <function=...></function> block must be nested within");
}

// <|im_start|>: Qwen, and others that only look like it.
Chosen choose_chatml(const std::string& jinja) {
    const Words words(jinja);
    if (words.has("<global_setting>")) return nullptr;  // ERNIE-4.5-Thinking.
    if (is_qwen_coder(words)) return std::make_unique<QwenCoderTemplate>();
    ChatmlThinking thinking = ChatmlThinking::kNone;
    if (words.has("enable_thinking")) {
        thinking = ChatmlThinking::kUnlessAsked;
    } else if (words.has_lines("<|im_start|>assistant\n<think>\n")) {
        thinking = ChatmlThinking::kAlways;
    }
    const bool has_tools = words.has("<tool_response>") && !words.has("<function=");
    return std::make_unique<ChatmlTemplate>(default_system(jinja), thinking, has_tools);
}

Chosen choose_deepseek(const Words& words) {
    using Thinking = DeepSeekV3Template::Thinking;
    if (words.has("thinking")) return std::make_unique<DeepSeekV31Template>();
    if (words.has("<｜Assistant｜><think>")) {
        return std::make_unique<DeepSeekV3Template>(Thinking::kStarted);
    }
    return std::make_unique<DeepSeekV3Template>(words.has("</think>") ? Thinking::kOwn
                                                                      : Thinking::kNone);
}

// Each release tells itself another name.
Chosen choose_minimax(const Words& words) {
    const std::string identity = words.between("set model_identity = \"", "\"");
    if (identity.empty()) return nullptr;
    return std::make_unique<MiniMaxTemplate>(identity, words.has("<minimax:tool_call>"));
}

// K2.5 declares them in a programming language, and early forms of K2 below a title.
KimiTemplate::Tools kimi_tools(const Words& words) {
    const bool is_other = words.has("tools_ts_str") || words.has("# Tools");
    if (is_other || !words.has("<|tool_calls_section_begin|>")) return KimiTemplate::Tools::kNone;
    return words.has("separators=(',', ':')") ? KimiTemplate::Tools::kCompact
                                              : KimiTemplate::Tools::kSpaced;
}

Chosen choose_kimi(const std::string& jinja) {
    using Thinking = KimiTemplate::Thinking;
    const Words words(jinja);
    Thinking thinking = words.has("<think></think>") ? Thinking::kOwn : Thinking::kNone;
    if (words.has("thinking is false")) {
        thinking = Thinking::kUnlessAsked;
    } else if (!words.between("add_generation_prompt", "<think>").empty()) {
        return nullptr;  // K2.7-Code, which keeps all earlier thoughts.
    }
    return std::make_unique<KimiTemplate>(default_system(jinja), thinking, kimi_tools(words));
}

Chosen choose_mistral(const Words& words) {
    if (words.has(" [/INST]")) {
        return std::make_unique<MixtralTemplate>(words.has("' [INST]") || words.has("\" [INST]"));
    }
    return std::make_unique<MistralV3Template>(words.has("[INST] "), words.has("system_message"));
}

// Roles as marks, which many have: OLMoE, Phi.
Chosen choose_roles(const Words& words, const ChatFiles& files) {
    if (!words.has("<|user|>") || !words.has("<|assistant|>")) return nullptr;
    if (words.has("<|end|>")) return std::make_unique<PhiTemplate>(files.eos_token);
    if (!words.has("eos_token")) return nullptr;
    return std::make_unique<OlmoeTemplate>(words.has("bos_token") ? files.bos_token : "",
                                           files.eos_token);
}

// By words that only that family's template has.
Chosen choose(const ChatFiles& files) {
    const std::string& jinja = files.chat_template;
    const Words words(jinja);
    if (words.has("<|im_middle|>")) return choose_kimi(jinja);
    if (words.has("<|im_start|>")) return choose_chatml(jinja);
    if (words.has("<｜Assistant｜>")) return choose_deepseek(words);
    if (words.has("[gMASK]")) {
        return std::make_unique<GlmTemplate>(words.has("clear_thinking") ? GlmTemplate::Form::k47
                                                                         : GlmTemplate::Form::k45);
    }
    if (words.has("<|channel|>") && words.has("<|start|>")) {
        return std::make_unique<HarmonyTemplate>();
    }
    if (words.has("]~b]")) return choose_minimax(words);
    if (words.has("<|endofuserprompt|>")) {
        return std::make_unique<DotsTemplate>(default_system(jinja));
    }
    const std::string maker = words.between("set DEVSYSTEM -%}", "{%- endset");
    if (words.has("<|role_sep|>") && !maker.empty()) {
        return std::make_unique<GigaChatTemplate>(files.bos_token, maker);
    }
    if (words.has("[INST]")) return choose_mistral(words);
    if (Chosen roles = choose_roles(words, files)) return roles;
    const bool has_bos = files.bos_token == "<｜begin▁of▁sentence｜>";
    if (words.has("'User: '") && words.has("'Assistant:'") && has_bos) {
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
    if (!jinja.ok() && jinja.error().code != Code::kNotFound) return jinja.error();
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
