// SPDX-License-Identifier: Apache-2.0
//
// Where afd-quantize puts a result: whose it is while it is made, and what stays of it.
#include "tools/afd-quantize/result_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_directory.h"
#include "tests/tools/afd-quantize/small_quantise.h"

namespace afd::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The files that inotify has told of until now.
std::vector<std::string> names_of_events(int watch) {
    alignas(inotify_event) std::array<char, 4096> bytes;
    std::vector<std::string> names;
    const ssize_t size = ::read(watch, bytes.data(), bytes.size());
    for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(bytes.data() + at);
        if ((event->mask & IN_DELETE) != 0) names.push_back(event->name);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return names;
}

TEST(ResultDirectory, IsOfOneJobAndOneProcess) {
    const test::TemporaryDirectory target;
    const std::string path = target.path("out");
    {
        const auto first = ResultDirectory::open(path, "this job");
        ASSERT_TRUE(first.ok()) << first.error().message;
        EXPECT_THAT(ResultDirectory::open(path, "this job").error().message,
                    HasSubstr("another afd-quantize is writing it; wait for it or stop it"));
    }
    EXPECT_THAT(ResultDirectory::open(path, "that job").error().message,
                HasSubstr("holds the beginnings of another job (this job; wanted: that job); give "
                          "--out a new name, or remove it"));
    EXPECT_TRUE(ResultDirectory::open(path, "this job").ok());
}

// Goal: of two equal commands the one that comes at the end of the other does not begin anew.
// Method: it has seen .unfinished, which the other removes before it makes its own.
TEST(ResultDirectory, WhatAnotherRunHasFinishedStays) {
    const test::TemporaryDirectory target;
    const std::string path = target.path("out");
    ASSERT_TRUE(ResultDirectory::open(path, "job").value().finish().ok());
    target.write("out/config.json", "{}");
    fs::create_directory(path + "/.unfinished");
    target.write("out/.unfinished/rows", "of a run that was killed while it removed them");
    const auto second = ResultDirectory::open(path, "job");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    EXPECT_THAT(second.error().message, HasSubstr("holds a whole model already; give --out a new"));
    EXPECT_THAT(contents(path), ElementsAre(std::pair("config.json", "{}")));
    EXPECT_FALSE(fs::exists(path + "/.unfinished"));
}

// Goal: who comes while a run removes its folder does not take the result for the beginnings of the
// same job. Oracle: the order in which the kernel saw files go: the note of the job before all
// others, the lock behind them.
TEST(ResultDirectory, ForgetsTheJobFirstAndGivesTheLockBackLast) {
    const test::TemporaryDirectory target;
    const std::string folder = target.path("out/.unfinished");
    auto directory = ResultDirectory::open(target.path("out"), "job").value();
    ASSERT_TRUE(directory.keep(ChannelRanges{{1}}).ok());
    for (const char* name : {"a", "rows", "z"}) std::ofstream(folder + "/" + name) << name;
    const int watch = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    ASSERT_GE(watch, 0) << std::strerror(errno);
    ASSERT_GE(::inotify_add_watch(watch, folder.c_str(), IN_DELETE), 0);
    ASSERT_TRUE(directory.finish().ok());
    EXPECT_FALSE(fs::exists(folder));
    const std::vector<std::string> removed = names_of_events(watch);
    ::close(watch);
    ASSERT_EQ(removed.size(), 6u);
    EXPECT_EQ(removed.front(), "progress.json");
    EXPECT_EQ(removed.back(), "lock");
}

// Goal: files that nobody knows the job of are not written over. Method: a note that says none,
// beside a file and alone. Oracle: everything there, and that what else the note says is not used.
TEST(ResultDirectory, LeavesFilesOfAnUnknownJobAlone) {
    const test::TemporaryDirectory target;
    const std::string path = target.path("out");
    for (const char* note : {"", R"({"units_done": 3})", R"({"job": 5, "units_done": 3})"}) {
        fs::create_directories(path + "/.unfinished");
        ASSERT_TRUE(ResultDirectory::open(path, "job").value().keep(ChannelRanges{{1}}).ok());
        target.write("out/.unfinished/progress.json", note);
        target.write("out/model-00001.safetensors", "weights");
        const auto opened = ResultDirectory::open(path, "job");
        ASSERT_FALSE(opened.ok()) << note;
        EXPECT_EQ(opened.error().code, Code::kAlreadyExists);
        EXPECT_EQ(opened.error().message,
                  path + ": is not an empty directory; give --out a new name, or remove it");
        EXPECT_EQ(contents(path)["model-00001.safetensors"], "weights");
        EXPECT_EQ(contents(path)[".unfinished/progress.json"], note);
        fs::remove(path + "/model-00001.safetensors");
        const auto alone = ResultDirectory::open(path, "job");
        ASSERT_TRUE(alone.ok()) << alone.error().message;
        EXPECT_EQ(alone.value().units_done(), 0u);
        EXPECT_FALSE(alone.value().ranges(1, 1));
    }
}

// Goal: what cannot be listed is an error, and neither an empty directory nor an exception. Method:
// the directory is gone.
TEST(ResultDirectory, SaysWhatCannotBeListed) {
    const test::TemporaryDirectory target;
    auto directory = ResultDirectory::open(target.path("out"), "job").value();
    fs::remove_all(target.path("out"));
    EXPECT_EQ(directory.finish().error().message,
              target.path("out") + ": cannot be listed: No such file or directory");
}

TEST(ResultDirectory, KeepsWhatWasMeasured) {
    const test::TemporaryDirectory target;
    const ChannelRanges ranges = {{1.5f, 0.25f, 0}, {3, 4, 5}};
    {
        auto directory = ResultDirectory::open(target.path("out"), "job").value();
        EXPECT_FALSE(directory.ranges(2, 3));
        EXPECT_FALSE(directory.perplexity("text"));
        ASSERT_TRUE(directory.keep(ranges).ok());
        ASSERT_TRUE(directory.keep("text", {2.5, 100, 64, 0.75}).ok());
        ASSERT_TRUE(directory.set_units_done(7).ok());
    }
    auto directory = ResultDirectory::open(target.path("out"), "job").value();
    EXPECT_EQ(directory.units_done(), 7u);
    EXPECT_EQ(directory.ranges(2, 3), ranges);
    EXPECT_FALSE(directory.ranges(3, 2));
    ASSERT_TRUE(directory.perplexity("text"));
    EXPECT_EQ(directory.perplexity("text")->value, 2.5);
    EXPECT_EQ(directory.perplexity("text")->num_scored, 100u);
    EXPECT_FALSE(directory.perplexity("another text"));
    ASSERT_TRUE(directory.finish().ok());
    EXPECT_TRUE(fs::is_empty(target.path("out")));
}

}  // namespace
}  // namespace afd::tools
