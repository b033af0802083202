// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/state_text.h"

#include <google/protobuf/util/json_util.h>

namespace afd::daemon {

std::string state_text(const client::Status& status) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string text;
    const auto done = google::protobuf::util::MessageToJsonString(status, &text, options);
    return done.ok() ? text : "{}";
}

}  // namespace afd::daemon
