// SPDX-License-Identifier: Apache-2.0
//
// HTTP connections that go on with another afdd. Goal: the client sees one connection on which each
// request is answered once. Method: an heir that notes what it is given, and a second gateway with
// sessions over those sockets. Oracle: the bytes that the client reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/http/http_exchange.h"
#include "daemon/http/http_form.h"
#include "daemon/http/http_front_end.h"
#include "daemon/program/version.h"
#include "tests/daemon/gateway/noting_heir.h"
#include "tests/daemon/http/http_session_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

class HttpDepartureTest : public HttpSessionTest {
  protected:
    HttpDepartureTest() {
        config_.resume_grace_ms = 60'000;
        config_.resume_buffer_kib = 1024;
        config_.detached_requests_max = 4;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.stop_ids = {kEndOfText};
        model.tokenizer = &tokenizer_;
        next_gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), next_instance_, next_instance_);
        next_gateway_->on_attention_ready(0, 1 << 20);
        next_instance_.state = "ready";
        next_services_ = make_services({.bytes_max = size_t{1} << 20, .timeout_ms = 60'000});
        auto door = HttpFrontEnd::open(
            loop_, parse_listen_address("127.0.0.1:0").value(), *next_gateway_, next_services_);
        EXPECT_TRUE(door.ok());
        next_door_ = std::move(door).value();
    }

    void expect_handed(size_t count) {
        EXPECT_TRUE(run_until(loop_, [&] { return heir_.connections.size() == count; }))
            << heir_.connections.size();
    }
    void go_on_with(HandedConnection& connection) { next_door_->adopt(std::move(connection)); }

    static constexpr const char* kAsked = R"({"prompt":"abc","max_tokens":2})";

    NotingHeir heir_;
    ScriptedInstance next_instance_;
    std::unique_ptr<Gateway> next_gateway_;
    std::shared_ptr<HttpServices> next_services_;
    std::unique_ptr<FrontEnd> next_door_;
};

TEST_F(HttpDepartureTest, ARequestThatRunsEndsHereAndTheOneBehindItThere) {
    const auto client = connect();
    const std::string second = HttpClient::post_bytes("/tokenize", R"({"prompt":"hi"})");
    client->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    gateway_->leave_to(heir_);
    client->send(second);
    run_for(loop_, 20, [] { return false; });
    EXPECT_TRUE(heir_.connections.empty());
    say(id, "xy");
    end(id);
    EXPECT_THAT(next(*client).body, HasSubstr(R"("text":"xy")"));
    expect_handed(1);
    EXPECT_EQ(heir_.connections[0].door, kHttpDoor);
    EXPECT_EQ(heir_.connections[0].unread, second);
    EXPECT_TRUE(client->in.empty());
    go_on_with(heir_.connections[0]);
    EXPECT_EQ(next(*client).status, 200);
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200);
    EXPECT_FALSE(client->is_closed);
}

TEST_F(HttpDepartureTest, HalfAHeaderGoesAndHalfABodyIsAnsweredHere) {
    const std::string whole = HttpClient::post_bytes("/tokenize", R"({"prompt":"hi"})");
    const auto in_header = connect();
    const auto in_body = connect();
    in_header->send(whole.substr(0, 20));
    in_body->send(whole.substr(0, whole.size() - 3));
    run_for(loop_, 20, [] { return false; });
    gateway_->leave_to(heir_);
    expect_handed(1);
    EXPECT_EQ(heir_.connections[0].unread, whole.substr(0, 20));
    in_body->send(whole.substr(whole.size() - 3));
    EXPECT_EQ(next(*in_body).status, 200);
    expect_handed(2);
    EXPECT_EQ(heir_.connections[1].unread, "");
    go_on_with(heir_.connections[0]);
    in_header->send(whole.substr(20));
    EXPECT_EQ(next(*in_header).status, 200);
}

TEST_F(HttpDepartureTest, WhenItStaysWhatWaitedIsServed) {
    const auto client = connect();
    client->post(kCompletions, kAsked);
    const uint64_t id = next_admitted();
    gateway_->leave_to(heir_);
    client->get("/v1/models");
    say(id, "xy");
    end(id);
    EXPECT_EQ(next(*client).status, 200);
    gateway_->stay();
    EXPECT_EQ(next(*client).status, 200);
    EXPECT_TRUE(heir_.connections.empty());
}

// Goal: an upgrade costs no client its connection or its answer, however full the next afdd is.
// Method: an answer that its client has not read, handed to a gateway of one place, which another
// request holds. Oracle: the whole answer, nothing behind it, and the connection goes on.
TEST_F(HttpDepartureTest, AHandedConnectionNeedsNoPlaceAndHearsTheRest) {
    const auto client = connect(4096);
    client->post(kCompletions,
                 R"({"prompt":"a","max_tokens":4000,"logprobs":0,"return_token_ids":true})");
    const uint64_t id = next_admitted();
    say(id, std::string(4000, 'x'));
    end(id);
    gateway_->leave_to(heir_);
    expect_handed(1);
    ASSERT_FALSE(heir_.connections[0].unsent.empty()) << "all is sent: this tests nothing";
    config_.connections_max = 1;
    next_gateway_->limit_connections(1'000);
    HttpClient holder(loop_, *next_gateway_, next_services_);
    holder.post(kCompletions, kAsked);
    ASSERT_TRUE(run_until(loop_, [&] { return next_gateway_->num_in_flight() == 1; }));
    go_on_with(heir_.connections[0]);
    const auto body = nlohmann::json::parse(next(*client).body);
    EXPECT_EQ(body["choices"][0]["token_ids"].size(), 4000U);
    client->get("/v1/models");
    EXPECT_EQ(next(*client).status, 200);
    EXPECT_EQ(client->in, "");
    EXPECT_FALSE(client->is_closed);
}

// Method: the next one serves the model under another name. Oracle: what a connection reads here
// from the start of the stream, before it is given away.
TEST_F(HttpDepartureTest, AStreamThatIsOverIsResumedThereWithTheSameEvents) {
    const auto first = connect();
    first->post(kCompletions,
                R"({"prompt":"abc","max_tokens":4,"stream":true,"resumable_ms":60000,"logprobs":0,)"
                R"("return_token_ids":true,"stream_options":{"include_usage":true}})");
    const uint64_t id = next_admitted();
    say(id, "wxyz");
    end(id);
    ASSERT_TRUE(run_until(loop_, [&] {
        first->receive();
        return first->in.find("[DONE]") != std::string::npos;
    })) << first->in;
    const std::string name = HttpClient::header({200, first->in, ""}, "X-Afd-Resume");
    const auto undisturbed = connect();
    undisturbed->get("/v1/resume/" + name, "");
    const std::string expected = next(*undisturbed).body;
    EXPECT_THAT(expected, HasSubstr("[DONE]"));
    gateway_->leave_to(heir_);
    ASSERT_TRUE(run_until(loop_, [&] { return heir_.streams.size() == 1; }));
    next_services_->model.id = "renamed";
    auto form = HttpForm::read(heir_.streams[0].form);
    ASSERT_TRUE(form.ok()) << form.error().message;
    next_gateway_->adopt(heir_.streams[0], std::move(form).value());
    expect_handed(2);
    go_on_with(heir_.connections[0]);
    first->in.clear();
    first->get("/v1/resume/" + name, "");
    EXPECT_EQ(next(*first).body, expected);
}

// Goal: an upgrade changes no byte of a stream. Oracle: the last event of a stream that an afdd of
// another version began; one of before these names were kept has those of today.
TEST(HttpForm, KeepsTheNamesInEveryEvent) {
    ApiModel model;
    model.id = "renamed";
    AnswerForm form{
        .call = {.prompts = std::vector<client::Generate>(1), .include_usage = true},
        .head = {
            .id = "cmpl-1", .created = 17, .model = "tiny", .system_fingerprint = "afd-0.0.1"}};
    for (const bool is_kept : {true, false}) {
        if (!is_kept) form.head.model = form.head.system_fingerprint = "";
        const auto read = HttpForm::read(HttpForm(std::make_shared<AnswerForm>(form)).text());
        ASSERT_TRUE(read.ok()) << read.error().message;
        const auto& answer = dynamic_cast<const HttpForm&>(*read.value()).answer();
        std::string events;
        HttpExchange::resumed(answer, 0, model, 1).answer().append_last_events(events);
        EXPECT_THAT(events,
                    testing::StartsWith(R"(data: {"id":"cmpl-1","object":"text_completion",)"
                                        R"("created":17,"model":")" +
                                        std::string(is_kept ? "tiny" : "renamed") +
                                        R"(","system_fingerprint":"afd-)" +
                                        std::string(is_kept ? "0.0.1" : kVersion)));
    }
}

// Goal: the next afdd reads an answer, and values of calls, as this one would.
TEST(HttpForm, KeepsHowAnAnswerIsRead) {
    AnswerForm form;
    form.call.output = {.reasoning = model::ReasoningSyntax::kFinalChannel,
                        .tools = model::ToolSyntax::kGlm,
                        .types = model::ParameterTypes::of(
                            {R"({"function":{"name":"f","parameters":{"properties":)"
                             R"({"a":{"type":"string"},"b":{"type":["integer","null"]}},)"
                             R"("additionalProperties":{"type":"string"}}}})"}),
                        .follows_thought = true};
    const std::string text = HttpForm(std::make_shared<AnswerForm>(form)).text();
    const auto read = HttpForm::read(text);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto& answer = static_cast<const HttpForm&>(*read.value()).answer();
    EXPECT_EQ(answer->call.output.reasoning, model::ReasoningSyntax::kFinalChannel);
    EXPECT_EQ(answer->call.output.tools, model::ToolSyntax::kGlm);
    EXPECT_TRUE(answer->call.output.follows_thought);
    EXPECT_EQ(answer->call.output.types->kinds(), form.call.output.types->kinds());
    EXPECT_EQ(answer->call.output.types->kinds().at("f").listed.size(), 2U);
    EXPECT_EQ(answer->call.output.types->json_of("f", "c", "1"), "\"1\"");
}

// Goal: a client's names are handed over once, or a request of some hundred KiB would become a form
// of as many MiB. Method: a long name of a function with many parameters. Oracle: the bytes of it.
TEST(HttpForm, HasTheNameOfAFunctionOnce) {
    std::string properties;
    for (int i = 0; i < 500; ++i) {
        properties += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{}";
    }
    const std::string name(100'000, 'f');
    AnswerForm form;
    form.call.output = {.tools = model::ToolSyntax::kGlm,
                        .types = model::ParameterTypes::of({R"({"function":{"name":")" + name +
                                                            R"(","parameters":{"properties":{)" +
                                                            properties + "}}}}"})};
    EXPECT_EQ(form.call.output.types->kinds().at(name).listed.size(), 500U);
    EXPECT_LT(HttpForm(std::make_shared<AnswerForm>(form)).text().size(), 2 * name.size());
}

TEST(HttpForm, OfAnUnknownProgramIsRefused) {
    AnswerForm form;
    form.call.output.tools = static_cast<model::ToolSyntax>(99);
    const std::string text = HttpForm(std::make_shared<AnswerForm>(form)).text();
    for (const std::string& bad : {text, std::string("\xff\xff")}) {
        const auto read = HttpForm::read(bad);
        ASSERT_FALSE(read.ok());
        EXPECT_EQ(read.error().message, "the form of the answer is not known here");
    }
}

}  // namespace
}  // namespace afd::daemon
