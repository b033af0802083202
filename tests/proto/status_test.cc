// SPDX-License-Identifier: Apache-2.0
#include "proto/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace afd {
namespace {

Result<int> half(int number) {
    if (number % 2 != 0) {
        return Error{Code::kInvalidArgument, std::to_string(number) + " is odd"};
    }
    return number / 2;
}

Result<int> quarter(int number) {
    AFD_ASSIGN(const int first, half(number));
    AFD_ASSIGN(const int second, half(first));
    return second;
}

Result<> is_multiple_of_four(int number) {
    AFD_TRY(quarter(number));
    return {};
}

TEST(Result, CarriesTheValueOrTheFirstErrorUpwards) {
    EXPECT_EQ(quarter(12).value(), 3);
    EXPECT_EQ(quarter(6).error().message, "3 is odd");
    EXPECT_EQ(quarter(7).error().message, "7 is odd");
    EXPECT_TRUE(is_multiple_of_four(8).ok());
    EXPECT_EQ(is_multiple_of_four(10).error().code, Code::kInvalidArgument);
}

TEST(Result, MovesAValueThatCannotBeCopied) {
    Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
    std::unique_ptr<int> value = std::move(result).value();
    EXPECT_EQ(*value, 5);
}

TEST(ResultDeathTest, AbortsWithTheMessageWhenAnErrorIsTakenForAValue) {
    Result<int> result(Error{Code::kNotFound, "no such model"});
    EXPECT_DEATH(static_cast<void>(result.value()), "no such model");
}

}  // namespace
}  // namespace afd
