// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/api_error.h"

#include <gtest/gtest.h>

#include "proto/status.h"

namespace afd::daemon {
namespace {

// Each Code has its status, and the field that a message begins with is its param.
TEST(ApiError, IsWhatTheGatewayMeans) {
    struct Case {
        Code code;
        const char* message;
        int status;
        const char* param;
        const char* name;
    };
    const Case cases[] = {
        {Code::kInvalidArgument, "top_p = 2: must be in [0, 1]", 400, "top_p", ""},
        {Code::kInvalidArgument, "token_ids[3] = 9: must be below", 400, "prompt", ""},
        {Code::kInvalidArgument, "stop has 17 strings", 400, "stop", ""},
        {Code::kInvalidArgument, "stop[2] is empty", 400, "stop", ""},
        {Code::kInvalidArgument, "it is not supported yet", 400, "", "unsupported_parameter"},
        {Code::kInvalidArgument, "stop is not supported yet", 400, "stop", "unsupported_parameter"},
        {Code::kInvalidArgument, "the prompt is empty: it must", 400, "prompt", ""},
        {Code::kInvalidArgument,
         "the prompt has 9 tokens and max_tokens is 5: together at most 8 fit, the context",
         400,
         "max_tokens",
         "context_length_exceeded"},
        {Code::kInvalidArgument,
         "the prompt has 99 bytes, which are at least 9 tokens: at most 8 fit, the context",
         400,
         "prompt",
         "context_length_exceeded"},
        {Code::kInvalidArgument,
         "the prompt cannot be tokenized: splitting the text into pieces exceeds the limits of",
         400,
         "prompt",
         ""},
        {Code::kResourceExhausted, "the queue is full", 429, "", "queue_full"},
        {Code::kResourceExhausted, "the client reads too slowly: 9", 408, "", "client_too_slow"},
        {Code::kResourceExhausted, "nothing of it was read for", 408, "", "client_too_slow"},
        {Code::kResourceExhausted,
         "the answers that are kept are too many (resume_buffer_kib)",
         503,
         "",
         "resume_buffer_full"},
        {Code::kFailedPrecondition, "afdd is draining", 503, "", "draining"},
        {Code::kUnavailable, "no worker", 503, "", "worker_lost"},
        {Code::kDeadlineExceeded, "waited", 504, "", "deadline_exceeded"},
        {Code::kInternal, "a bug", 500, "", "internal_error"},
        {Code::kUnimplemented, "suffix is not", 400, "suffix", "unsupported_parameter"},
    };
    for (const Case& expected : cases) {
        client::Error error;
        error.set_code(static_cast<uint32_t>(expected.code));
        error.set_message(expected.message);
        const ApiError mapped = api_error(error);
        EXPECT_EQ(mapped.status, expected.status) << expected.message;
        EXPECT_EQ(mapped.param, expected.param) << expected.message;
        EXPECT_EQ(mapped.code, expected.name) << expected.message;
        // What was kept is forgotten: there is nothing to come back for.
        const bool helps_to_wait =
            (mapped.status == 429 || mapped.status == 503) && mapped.code != "resume_buffer_full";
        EXPECT_EQ(mapped.retry_after_s > 0, helps_to_wait) << expected.message;
    }
}

}  // namespace
}  // namespace afd::daemon
