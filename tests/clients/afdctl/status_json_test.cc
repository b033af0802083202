// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/status_json.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace afd::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// One message in every list of messages, and in theirs.
void fill_lists(Message& message) {
    const Descriptor& descriptor = *message.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
        const FieldDescriptor* const field = descriptor.field(i);
        if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
        ASSERT_TRUE(field->is_repeated()) << field->full_name();
        fill_lists(*message.GetReflection()->AddMessage(&message, field));
    }
}

void expect_fields(const Descriptor& descriptor, const nlohmann::json& object) {
    EXPECT_EQ(object.size(), static_cast<size_t>(descriptor.field_count()))
        << descriptor.full_name();
    for (int i = 0; i < descriptor.field_count(); ++i) {
        const FieldDescriptor* const field = descriptor.field(i);
        ASSERT_TRUE(object.contains(field->name())) << field->full_name();
        const nlohmann::json& value = object[field->name()];
        EXPECT_EQ(value.is_array(), field->is_repeated()) << field->full_name();
        if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
        ASSERT_EQ(value.size(), 1u) << field->full_name();
        expect_fields(*field->message_type(), value[0]);
    }
}

// Goal: a program finds every field by its name in proto/client.proto, also one that was added
// later. Oracle: the descriptors of the messages.
TEST(StatusJson, HasEveryFieldOfTheProtocol) {
    Status status;
    fill_lists(status);
    expect_fields(*Status::descriptor(), nlohmann::json::parse(status_json(status)));
}

TEST(StatusJson, HasTheValues) {
    Status status;
    status.set_certificate_expires_s(1'900'000'000);
    status.add_workers()->set_num_in_flight(2);
    const nlohmann::json object = nlohmann::json::parse(status_json(status));
    EXPECT_EQ(object["certificate_expires_s"], 1'900'000'000);
    EXPECT_EQ(object["workers"][0]["num_in_flight"], 2);
}

}  // namespace
}  // namespace afd::client
