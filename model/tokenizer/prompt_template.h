// SPDX-License-Identifier: Apache-2.0
#pragma once

// PromptTemplate: the tokens that go before and after the ids of a text (BOS, EOS), as the
// post_processor of a tokenizer.json and the flags of a tokenizer_config.json ask for. Names, which
// the tokenizer looks up.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::model {

struct PromptTemplate {
    std::vector<std::string> start;
    std::vector<std::string> end;

    // Reads TemplateProcessing of one text (`single`), also in a Sequence; ByteLevel changes no
    // ids. Null gives no tokens. Errors: kUnimplemented and kDataLoss naming the key.
    static Result<PromptTemplate> parse(const nlohmann::json& post_processor,
                                        const std::string& origin);

    // tokenizer_config.json has the last word: add_bos_token and add_eos_token, if they are there,
    // replace the start and the end. An empty text means no such file.
    Result<> apply_config(std::string_view config_text, const std::string& origin);

  private:
    Result<> read(const nlohmann::json& processor, const std::string& origin);
    Result<> read_template(const nlohmann::json& processor, const std::string& origin);
};

}  // namespace afd::model
