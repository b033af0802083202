// SPDX-License-Identifier: Apache-2.0
#include "proto/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "proto/client.pb.h"

namespace afd {
namespace {

std::string frame_of(const std::string& text) {
    client::Generate message;
    message.set_text(text);
    std::string out;
    append_frame(message, out);
    return out;
}

TEST(FrameReader, YieldsWholeMessagesHoweverTheBytesArrive) {
    const std::string stream = frame_of("first") + frame_of("") + frame_of(std::string(70000, 'x'));
    for (const size_t step : {size_t{1}, size_t{3}, size_t{4096}, stream.size()}) {
        FrameReader reader;
        std::vector<std::string> texts;
        for (size_t at = 0; at < stream.size(); at += step) {
            reader.append(std::span(stream).subspan(at, std::min(step, stream.size() - at)));
            while (true) {
                auto frame = reader.next();
                ASSERT_TRUE(frame.ok());
                if (!frame.value()) break;
                client::Generate message;
                ASSERT_TRUE(message.ParseFromArray(frame.value()->data(),
                                                   static_cast<int>(frame.value()->size())));
                texts.push_back(message.text());
            }
        }
        EXPECT_EQ(texts, (std::vector<std::string>{"first", "", std::string(70000, 'x')}))
            << "step " << step;
    }
}

// Goal: the memory of a long frame is given back while the connection lives on.
TEST(FrameReader, GivesTheMemoryOfALongFrameBack) {
    FrameReader reader;
    reader.append(frame_of(std::string(size_t{4} << 20, 'x')));
    ASSERT_TRUE(reader.next().value().has_value());
    EXPECT_GT(reader.capacity(), size_t{4} << 20);
    EXPECT_FALSE(reader.next().value().has_value());
    EXPECT_LT(reader.capacity(), size_t{1} << 20);
    reader.append(frame_of("next"));
    EXPECT_TRUE(reader.next().value().has_value());
}

TEST(FrameReader, RefusesALengthBeyondTheLimit) {
    FrameReader reader;
    reader.append(std::string("\xff\xff\xff\x7f"));
    const auto frame = reader.next();
    ASSERT_FALSE(frame.ok());
    EXPECT_EQ(frame.error().code, Code::kDataLoss);
    EXPECT_EQ(frame.error().message,
              "frame of 2147483647 bytes announced; at most 16777216 are accepted");
}

}  // namespace
}  // namespace afd
