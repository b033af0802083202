// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/companion_files.h"

#include <cstddef>
#include <span>
#include <utility>

#include "model/json/json_document.h"
#include "model/safetensors/whole_file.h"

namespace afd::tools {
namespace {

constexpr const char* kCompanionNames[] = {"generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "tiktoken.model",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "LICENSE"};

constexpr size_t kCompanionBytesMax = size_t{1} << 30;

}  // namespace

Result<CompanionFiles> CompanionFiles::read(const std::string& directory) {
    CompanionFiles companions;
    for (const char* name : kCompanionNames) {
        auto text = model::read_text_file(directory + "/" + name, kCompanionBytesMax);
        if (!text.ok() && text.error().code == Code::kNotFound) continue;
        if (!text.ok()) return text.error();
        companions.files_.push_back({name, std::move(text).value()});
    }
    return companions;
}

Result<> CompanionFiles::write(const std::string& directory) const {
    for (const File& file : files_) {
        AFD_TRY(model::write_whole_file(directory + "/" + file.name,
                                        std::as_bytes(std::span(file.text))));
    }
    return {};
}

}  // namespace afd::tools
