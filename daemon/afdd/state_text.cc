// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/state_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace afd::daemon {

namespace {

using google::protobuf::FieldDescriptor;

using Json = nlohmann::ordered_json;

Json object_of(const google::protobuf::Message& message);

// Of a field that is there once, or of the entry `index` of one that is repeated.
Json json_of(const google::protobuf::Message& message, const FieldDescriptor& field, int index) {
    const auto& reflection = *message.GetReflection();
    const bool many = field.is_repeated();
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
            return many ? reflection.GetRepeatedInt32(message, &field, index)
                        : reflection.GetInt32(message, &field);
        case FieldDescriptor::CPPTYPE_INT64:
            return many ? reflection.GetRepeatedInt64(message, &field, index)
                        : reflection.GetInt64(message, &field);
        case FieldDescriptor::CPPTYPE_UINT32:
            return many ? reflection.GetRepeatedUInt32(message, &field, index)
                        : reflection.GetUInt32(message, &field);
        case FieldDescriptor::CPPTYPE_UINT64:
            return many ? reflection.GetRepeatedUInt64(message, &field, index)
                        : reflection.GetUInt64(message, &field);
        case FieldDescriptor::CPPTYPE_DOUBLE:
            return many ? reflection.GetRepeatedDouble(message, &field, index)
                        : reflection.GetDouble(message, &field);
        case FieldDescriptor::CPPTYPE_FLOAT:
            return many ? reflection.GetRepeatedFloat(message, &field, index)
                        : reflection.GetFloat(message, &field);
        case FieldDescriptor::CPPTYPE_BOOL:
            return many ? reflection.GetRepeatedBool(message, &field, index)
                        : reflection.GetBool(message, &field);
        case FieldDescriptor::CPPTYPE_ENUM:
            return (many ? reflection.GetRepeatedEnum(message, &field, index)
                         : reflection.GetEnum(message, &field))
                ->name();
        case FieldDescriptor::CPPTYPE_STRING:
            return many ? reflection.GetRepeatedString(message, &field, index)
                        : reflection.GetString(message, &field);
        case FieldDescriptor::CPPTYPE_MESSAGE:
            return object_of(many ? reflection.GetRepeatedMessage(message, &field, index)
                                  : reflection.GetMessage(message, &field));
    }
    return nullptr;
}

Json object_of(const google::protobuf::Message& message) {
    Json object = Json::object();
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
        const FieldDescriptor& field = *type.field(i);
        if (!field.is_repeated()) {
            object[field.name()] = json_of(message, field, 0);
            continue;
        }
        Json array = Json::array();
        const int size = message.GetReflection()->FieldSize(message, &field);
        for (int index = 0; index < size; ++index) {
            array.push_back(json_of(message, field, index));
        }
        object[field.name()] = std::move(array);
    }
    return object;
}

}  // namespace

std::string state_text(const client::Status& status) {
    // A path or a reason may have bytes that are no UTF-8.
    return object_of(status).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace afd::daemon
