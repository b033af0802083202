// SPDX-License-Identifier: Apache-2.0
//
// Goal: what a client writes in a completion becomes the Generate that it means, or a 400 that
// names the field. Method: tables of bodies. Oracle: the message's fields; status, code, param and
// words.
#include "daemon/http/call/generation_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/daemon/gateway/byte_tokenizer.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

class GenerationCallTest : public testing::Test {
  protected:
    GenerationCallTest() : tokenizer_(make_byte_tokenizer()) {
        model_.id = "tiny";
        model_.root = "/models/tiny";
        model_.vocab_size = kByteVocabulary;
        model_.context_length = 4096;
        model_.tokenizer = &tokenizer_;
    }

    GenerationCall read(const std::string& body) {
        ApiResult<GenerationCall> call = read_completion(body, model_);
        const auto* error = std::get_if<ApiError>(&call);
        EXPECT_EQ(error, nullptr) << body << ": " << error->message;
        return error == nullptr ? std::get<GenerationCall>(std::move(call)) : GenerationCall();
    }

    // The same with `fields` behind a prompt.
    GenerationCall with(const std::string& fields) {
        return read(R"({"prompt":"a",)" + fields + "}");
    }

    ApiError refusal(const std::string& body) {
        ApiResult<GenerationCall> call = read_completion(body, model_);
        EXPECT_TRUE(std::holds_alternative<ApiError>(call)) << body;
        const auto* error = std::get_if<ApiError>(&call);
        return error == nullptr ? ApiError() : *error;
    }

    model::Tokenizer tokenizer_;
    ApiModel model_;
};

TEST_F(GenerationCallTest, HasTheDefaultsOfTheApi) {
    const GenerationCall call = read(R"({"prompt":"a"})");
    ASSERT_EQ(call.prompts.size(), 1U);
    const client::Generate wish = call.wish(0);
    EXPECT_THAT(wish.token_ids().ids(), ElementsAre('a'));
    EXPECT_EQ(wish.max_tokens(), 16U);
    EXPECT_EQ(wish.sampling().temperature(), 1.0F);
    EXPECT_FALSE(wish.sampling().has_seed());
    EXPECT_FALSE(wish.return_token_ids());
    EXPECT_EQ(call.num_choices, 1U);
    EXPECT_FALSE(call.is_stream);
}

TEST_F(GenerationCallTest, TakesTheAuthorsDefaultsWhereTheClientSaysNothing) {
    model_.defaults.temperature = 0.5F;
    model_.defaults.top_k = 7;
    EXPECT_EQ(with(R"("n":1)").wish(0).sampling().temperature(), 0.5F);
    EXPECT_EQ(with(R"("n":1)").wish(0).sampling().top_k(), 7U);
    EXPECT_EQ(with(R"("temperature":0)").wish(0).sampling().temperature(), 0.0F);
    EXPECT_EQ(with(R"("top_k":-1)").wish(0).sampling().top_k(), 0U);

    model_.defaults.min_p = 0.25F;
    model_.defaults.repetition_penalty = 1.25F;
    model_.defaults.presence_penalty = 1.5F;
    model_.defaults.frequency_penalty = -0.5F;
    const SamplingSettings silent = with(R"("n":1)").wish(0).sampling();
    EXPECT_EQ(silent.min_p(), 0.25F);
    EXPECT_EQ(silent.repetition_penalty(), 1.25F);
    EXPECT_EQ(silent.presence_penalty(), 1.5F);
    EXPECT_EQ(silent.frequency_penalty(), -0.5F);
    const SamplingSettings off =
        with(R"("min_p":0,"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0)")
            .wish(0)
            .sampling();
    EXPECT_EQ(off.min_p(), 0.0F);
    EXPECT_EQ(off.repetition_penalty(), 0.0F) << "which means 1";
    EXPECT_EQ(off.presence_penalty(), 0.0F);
    EXPECT_EQ(off.frequency_penalty(), 0.0F);
    EXPECT_EQ(with(R"("repetition_penalty":2)").wish(0).sampling().repetition_penalty(), 2.0F);
}

TEST_F(GenerationCallTest, FillsEveryField) {
    const GenerationCall call = read(R"({"model":"tiny","prompt":[1,2],"max_tokens":5,"n":3,
        "temperature":0.25,"top_p":0.5,"top_k":9,"min_p":0.125,"seed":-1,"ignore_eos":true,
        "presence_penalty":0.5,"frequency_penalty":-0.5,"repetition_penalty":1.25,
        "logit_bias":{"7":-100,"9":1.5},"stop":["x","y"],"stop_token_ids":[3,4],"min_tokens":2,
        "include_stop_str_in_output":true,"skip_special_tokens":false,"logprobs":2,"stream":true,
        "stream_options":{"include_usage":true,"continuous_usage_stats":true},
        "return_token_ids":true,"user":"me"})");
    ASSERT_EQ(call.prompts.size(), 1U);
    const client::Generate wish = call.wish(0);
    EXPECT_THAT(wish.token_ids().ids(), ElementsAre(1, 2));
    EXPECT_EQ(wish.max_tokens(), 5U);
    EXPECT_EQ(wish.sampling().temperature(), 0.25F);
    EXPECT_EQ(wish.sampling().top_p(), 0.5F);
    EXPECT_EQ(wish.sampling().top_k(), 9U);
    EXPECT_EQ(wish.sampling().min_p(), 0.125F);
    EXPECT_EQ(wish.sampling().seed(), UINT64_MAX);
    EXPECT_EQ(wish.sampling().presence_penalty(), 0.5F);
    EXPECT_EQ(wish.sampling().frequency_penalty(), -0.5F);
    EXPECT_EQ(wish.sampling().repetition_penalty(), 1.25F);
    ASSERT_EQ(wish.sampling().logit_bias_size(), 2);
    EXPECT_EQ(wish.sampling().logit_bias(0).token_id(), 7U);
    EXPECT_EQ(wish.sampling().logit_bias(1).bias(), 1.5F);
    EXPECT_THAT(wish.stop(), ElementsAre("x", "y"));
    EXPECT_THAT(wish.stop_token_ids(), ElementsAre(3, 4));
    EXPECT_EQ(wish.min_tokens(), 2U);
    EXPECT_EQ(wish.top_logprobs(), 2U);
    EXPECT_TRUE(wish.ignore_eos());
    EXPECT_TRUE(wish.include_stop_str_in_output());
    EXPECT_TRUE(wish.keep_special_tokens());
    EXPECT_FALSE(wish.begins_text()) << "a completion goes on with its prompt";
    EXPECT_TRUE(wish.return_logprobs());
    EXPECT_TRUE(wish.return_token_ids());
    EXPECT_TRUE(call.is_stream && call.include_usage && call.continuous_usage);
    EXPECT_TRUE(call.return_token_ids);
    EXPECT_EQ(call.num_choices, 3U);
    EXPECT_TRUE(call.ignored.empty());
}

// Goal: a number that a float has no place for still means what it says, and 64 bits are 64 bits.
TEST_F(GenerationCallTest, NumbersAtTheirLimitsMeanWhatTheySay) {
    const auto sampling = [&](const std::string& fields) {
        return with(fields).wish(0).sampling();
    };
    EXPECT_EQ(sampling(R"("top_p":1e-60)").top_p(), std::numeric_limits<float>::min());
    EXPECT_EQ(sampling(R"("top_p":0.5)").top_p(), 0.5F);
    EXPECT_EQ(sampling(R"("repetition_penalty":0.01)").repetition_penalty(), 0.01F);
    for (const char* penalty : {"1e-60", "0.0099", "100.5", "-1"}) {
        const ApiError error =
            refusal(std::string(R"({"prompt":"a","repetition_penalty":)") + penalty + "}");
        EXPECT_EQ(error.param, "repetition_penalty") << penalty;
        EXPECT_THAT(error.message, HasSubstr("must be 0.01 to 100")) << penalty;
    }
    EXPECT_EQ(sampling(R"("seed":18446744073709551615)").seed(), UINT64_MAX);
    EXPECT_EQ(sampling(R"("seed":9223372036854775808)").seed(), uint64_t{1} << 63);
    EXPECT_EQ(sampling(R"("seed":-9223372036854775808)").seed(), uint64_t{1} << 63);
    EXPECT_THAT(refusal(R"({"prompt":"a","seed":18446744073709551616})").message,
                MatchesRegex("seed = 1\\.8[0-9]*e\\+19: must have at most 64 bits"));
    EXPECT_EQ(refusal(R"({"prompt":"a","seed":1.5})").message,
              "seed is a number with a fraction; it must be an integer of 64 bits");
    EXPECT_EQ(refusal(R"({"prompt":"a","seed":"1"})").param, "seed");
}

// Goal: what the answer is not held to is said. Oracle: the places in the schema.
TEST_F(GenerationCallTest, ListsTheFormatsThatNothingIsHeldTo) {
    const std::string head =
        R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)";
    EXPECT_THAT(with(head + R"({"properties":{"day":{"type":"string","format":"date"},
                     "mail":{"type":"string","format":"email"}}}}})")
                    .ignored,
                ElementsAre("response_format.json_schema.schema/properties/mail/format"));
    EXPECT_TRUE(with(head + R"({"type":"string","format":"uuid"}}})").ignored.empty());
}

TEST_F(GenerationCallTest, KeepsTheDigitsOfLongIntegersInASchema) {
    EXPECT_EQ(with(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":
                   {"enum":[18446744073709551616,123456789012345678901234567890]}}})")
                  .wish(0)
                  .sampling()
                  .response_format()
                  .json_schema(),
              R"({"enum":[18446744073709551616,123456789012345678901234567890]})");
}

TEST_F(GenerationCallTest, TakesEveryFormOfPrompt) {
    EXPECT_THAT(read(R"({"prompt":["a","b"]})").wish(1).token_ids().ids(), ElementsAre('b'));
    EXPECT_THAT(read(R"({"prompt":[[1],[2,3]]})").wish(1).token_ids().ids(), ElementsAre(2, 3));
    EXPECT_THAT(read(R"({"prompt":["a",[2]]})").wish(1).token_ids().ids(), ElementsAre(2));
    EXPECT_EQ(with(R"("stop":"end")").wish(0).stop(0), "end");
}

// Goal: a body costs its own length, whatever it asks of however many prompts: the lists of stop
// strings, biases and schemas are judged later, by the gateway. Oracle: the bytes that are kept.
TEST_F(GenerationCallTest, WhatIsAskedOfAllPromptsIsKeptOnce) {
    std::string body = R"({"prompt":[[1])";
    for (int i = 1; i < 256; ++i) body += ",[1]";
    body += R"(],"stop":["a")";
    for (int i = 1; i < 10'000; ++i) body += R"(,"a")";
    const GenerationCall call = read(body + "]}");
    ASSERT_EQ(call.prompts.size(), 256U);
    size_t num_bytes = call.common.ByteSizeLong();
    for (const client::Generate& prompt : call.prompts) num_bytes += prompt.ByteSizeLong();
    EXPECT_LT(num_bytes, body.size());
    EXPECT_EQ(call.wish(255).stop_size(), 10'000);
    EXPECT_THAT(call.wish(255).token_ids().ids(), ElementsAre(1));
}

TEST_F(GenerationCallTest, NullIsAsIfTheFieldWereAbsent) {
    const GenerationCall call =
        with(R"("temperature":null,"stop":null,"n":null,"suffix":null,"seed":null)");
    EXPECT_EQ(call.wish(0).sampling().temperature(), 1.0F);
    EXPECT_FALSE(call.wish(0).sampling().has_seed());
}

TEST_F(GenerationCallTest, EchoOfNoTokensScoresThePrompt) {
    const GenerationCall call =
        read(R"({"prompt":[104,105],"echo":true,"max_tokens":0,"logprobs":0})");
    EXPECT_TRUE(call.hides_output);
    EXPECT_EQ(call.wish(0).max_tokens(), 1U);
    EXPECT_TRUE(call.wish(0).prompt_logprobs());
    ASSERT_EQ(call.echoes.size(), 1U);
    EXPECT_EQ(call.echoes[0].text, "hi");
    EXPECT_FALSE(call.echoes[0].keeps_special);
}

TEST_F(GenerationCallTest, ListsWhatItDoesNotKnow) {
    EXPECT_THAT(with(R"("zebra":1,"stream":true,"stream_options":{"x":1},"a":[])").ignored,
                ElementsAre("a", "zebra", "stream_options.x"));
    // Clients send every field that they know.
    EXPECT_THAT(with(R"("foo":null,"bar":1)").ignored, ElementsAre("bar"));
}

struct Refusal {
    const char* body;
    const char* param;
    const char* message;
};

TEST_F(GenerationCallTest, RefusesWithTheFieldAndTheReason) {
    std::string many_prompts = R"({"prompt":["")";
    for (int i = 1; i < 257; ++i) many_prompts += R"(,"")";
    many_prompts += "]}";
    const Refusal refusals[] = {
        {R"([1])", "", "the body is an array; it must be a JSON object"},
        {R"({})", "prompt", "prompt is missing"},
        {R"({"prompt":5})", "prompt", "prompt is an integer; it must be a string"},
        {R"({"prompt":[]})", "prompt", "empty array"},
        {R"({"prompt":["a",5]})", "prompt", "prompt[1] is an integer"},
        {R"({"prompt":[1,"a"]})", "prompt", "prompt[1] is a string; it must be a token id"},
        {R"({"prompt":[1,-2]})", "prompt", "prompt[1] is -2"},
        {R"({"prompt":[1.5]})", "prompt", "prompt[0] is a number with a fraction"},
        {many_prompts.c_str(), "prompt", "prompt has 257 prompts; at most 256"},
        {R"({"prompt":[99999999999]})", "prompt", "prompt[0] is 99999999999"},
        {R"({"prompt":"a","max_tokens":"5"})", "max_tokens", "max_tokens is a string; it must be"},
        {R"({"prompt":"a","max_tokens":0})", "max_tokens", "max_tokens = 0: must be 1 to"},
        {R"({"prompt":"a","max_tokens":1.5})", "max_tokens", "a number with a fraction"},
        {R"({"prompt":"a","max_tokens":99999999999999999999})", "max_tokens", "must be 1 to"},
        {R"({"prompt":"a","max_tokens":18446744073709551615})", "max_tokens", "must be 1 to"},
        {R"({"prompt":"a","temperature":"hot"})", "temperature", "it must be a number"},
        {R"({"prompt":"a","top_p":0})", "top_p", "must be above 0"},
        {R"({"prompt":"a","top_p":1.1})", "top_p", "top_p = 1.1: must be above 0, up to 1; 1"},
        {R"({"prompt":"a","top_k":-5})", "top_k", "top_k = -5: must be -1 to"},
        {R"({"prompt":"a","repetition_penalty":0})", "repetition_penalty", "must be 0.01 to 100"},
        {R"({"prompt":"a","n":17})", "n", "n = 17: must be 1 to 16"},
        {R"({"prompt":"a","n":true})", "n", "n is true or false; it must be an integer"},
        {R"({"prompt":"a","stream":1})", "stream", "stream is an integer; it must be true or"},
        {R"({"prompt":"a","stream_options":{}})", "stream_options", "is for streams"},
        {R"({"prompt":"a","stream":true,"stream_options":5})", "stream_options", "must be an obj"},
        {R"({"prompt":"a","stream":true,"stream_options":{"include_usage":"y"}})",
         "stream_options.include_usage",
         "it must be true or false"},
        {R"({"prompt":"a","stop":5})", "stop", "must be a string or an array"},
        {R"({"prompt":"a","stop":["x",5]})", "stop", "stop[1] is an integer"},
        {R"({"prompt":"a","stop_token_ids":["x"]})", "stop_token_ids", "stop_token_ids[0] is a"},
        {R"({"prompt":"a","logit_bias":[1]})", "logit_bias", "must be an object"},
        {R"({"prompt":"a","logit_bias":{"x":1}})", "logit_bias", "token ids for its keys"},
        {R"({"prompt":"a","logit_bias":{"1":"x"}})", "logit_bias", "numbers for its values"},
        {R"({"prompt":"a","logprobs":21})", "logprobs", "logprobs = 21: must be 0 to 20"},
        {R"({"prompt":"a","logprobs":true})", "logprobs", "it must be an integer"},
    };
    for (const Refusal& expected : refusals) {
        const ApiError error = refusal(expected.body);
        EXPECT_EQ(error.status, 400) << expected.body;
        EXPECT_EQ(error.param, expected.param) << expected.body;
        EXPECT_THAT(error.message, HasSubstr(expected.message)) << expected.body;
    }
}

TEST_F(GenerationCallTest, RefusesWhatItDoesNotDoInsteadOfLeavingItOut) {
    for (const char* field : {R"("suffix":"x")",
                              R"("best_of":2)",
                              R"("use_beam_search":true)",
                              R"("response_format":{"type":"grammar"})",
                              R"("guided_regex":"a*")",
                              R"("grammar":"root ::= [0-9]")",
                              R"("json_schema":{})",
                              R"("format":"json")",
                              R"("bad_words":["a"])",
                              R"("allowed_token_ids":[1])",
                              R"("continue_final_message":true)",
                              R"("prompt_logprobs":0)"}) {
        const ApiError error = refusal(std::string(R"({"prompt":"a",)") + field + "}");
        EXPECT_EQ(error.code, "unsupported_parameter") << field;
        EXPECT_THAT(field, HasSubstr(error.param)) << field;
    }
    for (const char* field : {R"("suffix":"")",
                              R"("best_of":1)",
                              R"("use_beam_search":false)",
                              R"("typical_p":1)",
                              R"("tfs_z":1.0)",
                              R"("functions":[])",
                              R"("bad_words":[])",
                              R"("continue_final_message":false)",
                              R"("service_tier":"auto")",
                              R"("priority":0)",
                              R"("response_format":{"type":"text"})"}) {
        EXPECT_TRUE(with(field).ignored.empty()) << field;
    }
}

// Goal: who asks to come before others is told that nobody does.
TEST_F(GenerationCallTest, SaysThatNoRequestComesFirst) {
    EXPECT_THAT(with(R"("priority":-1)").ignored, ElementsAre("priority"));
    EXPECT_THAT(with(R"("service_tier":"flex")").ignored, ElementsAre("service_tier"));
}

// Goal: an integer is one in any of the forms that JSON Schema calls so.
TEST_F(GenerationCallTest, TakesIntegersThatAreWrittenAsFractions) {
    EXPECT_EQ(with(R"("max_tokens":1e3)").wish(0).max_tokens(), 1000u);
    EXPECT_EQ(with(R"("max_tokens":7.0)").wish(0).max_tokens(), 7u);
    EXPECT_EQ(with(R"("seed":-3.0)").wish(0).sampling().seed(), UINT64_MAX - 2);
}

TEST_F(GenerationCallTest, TextGoesOnAsItsIds) {
    const GenerationCall call = read(R"({"prompt":["hi",[7]],"add_special_tokens":false})");
    ASSERT_EQ(call.prompts.size(), 2U);
    ASSERT_TRUE(call.wish(0).has_token_ids());
    EXPECT_THAT(call.wish(0).token_ids().ids(), ElementsAre('h', 'i'));
    EXPECT_THAT(call.wish(1).token_ids().ids(), ElementsAre(7));
    const GenerationCall echoed = read(R"({"prompt":"hi","add_special_tokens":false,"echo":true})");
    ASSERT_EQ(echoed.echoes.size(), 1U);
    EXPECT_EQ(echoed.echoes[0].text, "hi");
    EXPECT_TRUE(echoed.echoes[0].keeps_special);
    EXPECT_EQ(read(R"({"prompt":[104,256],"echo":true})").echoes.at(0).text, "h");
    EXPECT_EQ(
        read(R"({"prompt":[104,256],"echo":true,"skip_special_tokens":false})").echoes.at(0).text,
        "h<|end|>");
    const std::string text = R"({"prompt":")" + std::string(5000, 'a') + '"';
    for (const std::string& body : {text + '}', text + R"(,"add_special_tokens":false})"}) {
        const ApiError error = refusal(body);
        EXPECT_EQ(error.code, "context_length_exceeded");
        EXPECT_EQ(error.param, "prompt");
        EXPECT_THAT(error.message, HasSubstr("at most 4096 fit, the context length of the model"));
    }
}

// Goal: the schema goes on as it was written, the order of its members with it: the answer has it.
TEST_F(GenerationCallTest, ResponseFormatsBecomeThoseOfTheSettings) {
    const auto format = [&](const std::string& given) {
        return with("\"response_format\":" + given).wish(0).sampling().response_format();
    };
    EXPECT_TRUE(format(R"({"type":"json_object"})").json_object());
    EXPECT_FALSE(
        with(R"("response_format":{"type":"text"})").wish(0).sampling().has_response_format());
    EXPECT_EQ(format(R"({"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":
                     {"type":"object","properties":{"z":{},"a":{"enum":["\u00e9",1.5]}}}}})")
                  .json_schema(),
              R"({"type":"object","properties":{"z":{},"a":{"enum":["é",1.5]}}})");
    // As llama-server takes it.
    EXPECT_EQ(
        format(R"({"type":"json_object","schema":{"properties":{"z":{},"a":{}}}})").json_schema(),
        R"({"properties":{"z":{},"a":{}}})");
    EXPECT_THAT(with(R"("response_format":{"type":"text","schema":{}})").ignored,
                ElementsAre("response_format.schema"));
    const std::pair<const char*, const char*> refused[] = {
        {R"({"type":"json_schema"})", "has no json_schema"},
        {R"({"type":"json_schema","json_schema":{"name":"a"}})", "has no schema"},
        {R"({"type":"json_schema","json_schema":[]})", "response_format.json_schema"},
        {R"({"type":3})", "response_format.type is an integer"},
        {R"({})", "must be text, json_object or json_schema"},
        {R"("json")", "a string"}};
    for (const auto& [given, message] : refused) {
        const ApiError error =
            refusal(std::string(R"({"prompt":"a","response_format":)") + given + "}");
        EXPECT_EQ(error.status, 400) << given;
        EXPECT_THAT(error.message, HasSubstr(message)) << given;
    }
}

// Goal: no request keeps afdd busy with the order of its members (ordered_json.h); what has no
// order may be as large as a body. Method: 513 members in a schema, and beside one.
TEST_F(GenerationCallTest, BoundsWhatHasAnOrder) {
    std::string many = R"("m0":1)";
    for (int i = 1; i <= 512; ++i) many += ",\"m" + std::to_string(i) + "\":1";
    const std::string head = R"({"prompt":"a","response_format":{"type":"json_schema",)";
    const ApiError error =
        refusal(head + R"("json_schema":{"name":"n","schema":{"enum":[{)" + many + "}]}}}}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "response_format");
    EXPECT_EQ(error.message, "response_format: an object has more than 512 members");
    const std::string good = R"("json_schema":{"name":"n","schema":{}}})";
    EXPECT_EQ(read(head + good + R"(,"metadata":{)" + many + "}}").prompts.size(), 1U);
}

TEST_F(GenerationCallTest, RefusesWhatIsNoJson) {
    const std::pair<std::string, const char*> bodies[] = {
        {"", "the body is empty"},
        {"{", "not valid JSON near byte"},
        {R"({"prompt":"a"} x)", "not valid JSON near byte"},
        {"<html></html>", "not valid JSON near byte"},
        {R"({"prompt":"a","prompt":"b"})", "the key \"prompt\" stands twice"},
        {"{\"prompt\":\"\xff\xfe\"}", "not valid JSON near byte"},
        {R"({"prompt":"\ud800"})", "not valid JSON near byte"},
        {R"({"temperature":1e999,"prompt":"a"})", "it has a number beyond 1.8e308"},
        {R"({"temperature":NaN,"prompt":"a"})", "not valid JSON near byte"},
        {std::string(100000, '['), "nested deeper than 64"},
    };
    for (const auto& [body, message] : bodies) {
        const ApiError error = refusal(body);
        EXPECT_EQ(error.status, 400) << body.substr(0, 50);
        EXPECT_EQ(error.code, "invalid_json") << body.substr(0, 50);
        EXPECT_THAT(error.message, HasSubstr(message)) << body.substr(0, 50);
    }
}

TEST_F(GenerationCallTest, RefusesAnotherModel) {
    const ApiError error = refusal(R"({"model":"gpt-5","prompt":"a"})");
    EXPECT_EQ(error.status, 404);
    EXPECT_EQ(error.code, "model_not_found");
    EXPECT_THAT(error.message, HasSubstr("served is 'tiny'"));
    EXPECT_EQ(with(R"("model":"/models/tiny")").prompts.size(), 1U);
}

// Goal: a small request makes no answer of 100 MB: each choice says its prompt, with log
// probabilities. Method: 8192 tokens in two prompts, 16 choices, and alternatives up to the limit
// and beyond. Oracle: the refusal has the numbers; what is asked without an echo, or without log
// probabilities, is none of this.
TEST_F(GenerationCallTest, BoundsTheLogProbabilitiesOfEchoes) {
    const std::string prompt = "\"" + std::string(4096, 'a') + "\"";
    const auto body = [&](const std::string& fields) {
        return R"({"prompt":[)" + prompt + "," + prompt + R"(],"n":16,)" + fields + "}";
    };
    EXPECT_EQ(read(body(R"("echo":true,"logprobs":7)")).echoes.size(), 2U);
    EXPECT_EQ(read(body(R"("logprobs":20)")).top_logprobs, 20U);
    EXPECT_TRUE(read(body(R"("echo":true)")).has_echo);
    const ApiError error = refusal(body(R"("echo":true,"max_tokens":0,"logprobs":8)"));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "echo");
    EXPECT_EQ(error.message,
              "echo with logprobs asks for 1179648 log probabilities: 8192 tokens of prompts, n = "
              "16 times, with 1 + 8 each; at most 1048576 are served; send fewer prompts, or a "
              "smaller n or logprobs");
}

TEST_F(GenerationCallTest, BoundsPromptsTimesChoices) {
    std::string prompts = R"("a")";
    for (int i = 1; i < 17; ++i) prompts += R"(,"a")";
    EXPECT_EQ(refusal(R"({"prompt":[)" + prompts + R"(],"n":16})").param, "n");
    EXPECT_EQ(read(R"({"prompt":[)" + prompts + R"(],"n":15})").prompts.size(), 17U);
}

}  // namespace
}  // namespace afd::daemon
