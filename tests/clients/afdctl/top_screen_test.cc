// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace afd::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two looks at an instance, two seconds apart.
class TopScreenTest : public ::testing::Test {
  protected:
    TopScreenTest() {
        for (Status* status : {&before_, &now_}) {
            status->set_instance("blue");
            status->set_state("ready");
            status->set_model("/models/demo");
            status->set_uptime_ms(status == &before_ ? 10'000 : 12'000);
            add_worker(*status, "attention", 0);
            add_worker(*status, "ffn", 0);
        }
        now_.set_num_running(3);
        now_.set_num_output_tokens(1770);
        Worker& attention = *now_.mutable_workers(0);
        attention.set_busy_us(1'000'000);
        attention.set_bubble_us(500'000);
        attention.set_num_rounds(800);
        attention.set_num_in_flight(2);
        attention.set_num_sequences(3);
        now_.mutable_workers(1)->set_busy_us(2'000'000);
        for (const uint64_t rows : {0, 10, 40, 0}) {
            const auto expert = static_cast<uint32_t>(now_.workers(1).expert_rows_size());
            add_expert(before_, expert, 100, false);
            add_expert(now_, expert, 100 + rows, false);
        }
        add_expert(before_, 4, 0, true);
        add_expert(now_, 4, 1'000'000, true);
    }

    static void add_worker(Status& status, const std::string& role, uint32_t index) {
        Worker& worker = *status.add_workers();
        worker.set_role(role);
        worker.set_index(index);
        worker.set_pid(100 + index);
        worker.set_state("ready");
    }

    static void add_expert(Status& status, uint32_t expert, uint64_t rows, bool is_shared) {
        ExpertRows& one = *status.mutable_workers(1)->add_expert_rows();
        one.set_expert(expert);
        one.set_rows(rows);
        one.set_is_shared(is_shared);
    }

    std::string screen(ScreenSize size = {}) const {
        std::string text;
        for (const std::string& line : top_lines(before_, now_, size)) text += line + "\n";
        return text;
    }

    Status before_;
    Status now_;
};

// Oracle: half of 28 cells busy, a quarter bubble, the rest idle.
TEST_F(TopScreenTest, DrawsWhatEachWorkerDid) {
    EXPECT_THAT(screen(),
                HasSubstr("attention 0   ##############!!!!!!!.......   50   25     400/s     3    "
                          "2      0\n"));
    EXPECT_THAT(screen(), HasSubstr("ffn 0         ############################  100    0 "));
    EXPECT_THAT(screen(), HasSubstr("requests: 3 running, 0 waiting"));
    EXPECT_THAT(screen(), HasSubstr("885 tok/s"));
}

// Shared experts, which every row takes, would make all others look cold.
TEST_F(TopScreenTest, DrawsHowHotEachRoutedExpertWas) {
    EXPECT_EQ(expert_rows(before_, now_), (std::vector<uint64_t>{0, 10, 40, 0}));
    EXPECT_THAT(screen(), HasSubstr("experts 0-3: 50 rows; busiest 2 with 3.20 x the mean\n"));
    EXPECT_THAT(screen(), HasSubstr("[ -@ ]\n"));
}

// Goal: no answer costs more than the screen of it. Oracle: the numbers of the other experts.
TEST_F(TopScreenTest, LeavesOutExpertsThatNoModelHas) {
    for (const uint32_t expert : {UINT32_MAX, 1u << 31, 65'536u}) {
        add_expert(now_, expert, 7, false);
        ASSERT_EQ(expert_rows(before_, now_), (std::vector<uint64_t>{0, 10, 40, 0})) << expert;
    }
    EXPECT_THAT(screen(), HasSubstr("experts 0-3: 50 rows; "));
    add_expert(now_, 65'535, 7, false);
    EXPECT_EQ(expert_rows(before_, now_).size(), 65'536u);
}

// Counts of a successor are no continuation of its predecessor's.
TEST_F(TopScreenTest, SaysNothingOfAWorkerThatWasReplaced) {
    now_.mutable_workers(0)->set_pid(555);
    now_.mutable_workers(0)->set_state("starting");
    EXPECT_FALSE(worker_load(before_, now_, 0).is_known);
    EXPECT_THAT(screen(), HasSubstr(" starting\n"));
    const auto object = nlohmann::json::parse(top_json(before_, now_));
    EXPECT_TRUE(object["workers"][0]["busy"].is_null());
}

// Goal: nothing runs off the window, whatever its size and however much there is to show. Oracle:
// the size.
TEST_F(TopScreenTest, FitsTheWindow) {
    for (uint32_t i = 1; i < 40; ++i) {
        add_worker(before_, "attention", i);
        add_worker(now_, "attention", i);
    }
    for (uint32_t expert = 5; expert < 300; ++expert) {
        add_expert(before_, expert, 0, false);
        add_expert(now_, expert, expert, false);
    }
    for (int i = 0; i < 10; ++i) now_.add_waits("attention 0 waits " + std::string(200, 'x'));
    for (const ScreenSize size : {ScreenSize{80, 24},
                                  ScreenSize{200, 60},
                                  ScreenSize{40, 10},
                                  ScreenSize{10, 3},
                                  ScreenSize{1, 1}}) {
        const std::vector<std::string> lines = top_lines(before_, now_, size);
        EXPECT_LE(lines.size(), size.rows);
        for (const std::string& line : lines) EXPECT_LE(line.size(), size.columns) << line;
    }
    EXPECT_THAT(screen(), HasSubstr(" more\n"));
    EXPECT_THAT(screen(), HasSubstr("experts 0-299: "));
    EXPECT_THAT(screen(), HasSubstr("wait: attention 0 waits"));
}

TEST_F(TopScreenTest, TellsProgramsTheSame) {
    const auto object = nlohmann::json::parse(top_json(before_, now_));
    EXPECT_EQ(object["instance"], "blue");
    EXPECT_DOUBLE_EQ(object["seconds"], 2);
    EXPECT_DOUBLE_EQ(object["output_tokens_per_s"], 885);
    EXPECT_DOUBLE_EQ(object["workers"][0]["busy"], 0.5);
    EXPECT_DOUBLE_EQ(object["workers"][0]["bubble"], 0.25);
    EXPECT_EQ(object["workers"][0]["num_in_flight"], 2);
    EXPECT_EQ(object["expert_rows"], nlohmann::json({0, 10, 40, 0}));
}

// A first look has nothing before it.
TEST_F(TopScreenTest, ShowsALookWithoutAnEarlierOne) {
    const std::vector<std::string> lines = top_lines(now_, now_, {});
    EXPECT_THAT(lines.front(), StartsWith("afd blue   ready   up 12 s"));
    EXPECT_FALSE(worker_load(now_, now_, 0).is_known);
}

}  // namespace
}  // namespace afd::client
