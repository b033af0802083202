# SPDX-License-Identifier: Apache-2.0
"""A file includes what it names, itself or through our headers that it includes.

The compiler does not find out: a release compiles many files as one, with the headers of others
before them. Read by patterns, which takes seconds for all files: names that several of them declare
are passed over, and so are functions.
"""

import re
from collections import Counter
from pathlib import Path

from include_rules import includes_of

# A header of others: the names that ask for it. Another header that has them stands behind |.
STANDARD = {
    "algorithm": r"std::(ranges::)?(sort|stable_sort|find|find_if|find_if_not|any_of|all_of|none_of"
                 r"|count|count_if|min|max|minmax|clamp|min_element|max_element|copy|copy_n|fill"
                 r"|fill_n|reverse|rotate|transform|lower_bound|upper_bound|equal|equal_range"
                 r"|nth_element|partial_sort|is_sorted|unique|remove_if|shuffle|generate"
                 r"|swap_ranges|partition|stable_partition|binary_search|mismatch|search"
                 r"|lexicographical_compare|replace|for_each|set_difference|adjacent_find"
                 r"|push_heap|pop_heap|make_heap)\(",
    "array": r"std::(array|to_array)\b",
    "atomic": r"std::(atomic\w*|memory_order\w*)\b",
    "bit": r"std::(bit_cast|popcount|countr_zero|countl_zero|bit_width|bit_ceil|bit_floor"
           r"|has_single_bit|endian|rotl)\b",
    "charconv": r"std::(from_chars|to_chars)\b",
    "chrono|thread|future|condition_variable": r"std::chrono\b",
    "cmath": r"std::(sqrt|exp|exp2|log|log2|pow|sin|cos|tanh|floor|ceil|round|lround|llround|isnan"
             r"|isfinite|isinf|ldexp|fma|nearbyint|hypot|trunc)\(",
    "condition_variable": r"std::condition_variable\b",
    "cstddef|array|span|string|vector|memory": r"std::(byte|ptrdiff_t|nullptr_t)\b",
    "cstdio": r"std::(printf|fprintf|snprintf|fopen|fclose|fread|fwrite|fputs|FILE|remove|perror"
              r"|fflush)\b",
    "cstdlib": r"std::(getenv|abort|exit|malloc|free|strtod|strtol|strtoull|system)\b",
    "cstring": r"std::(mem(cpy|move|set|cmp|chr)|str(len|cmp|ncmp|error|chr|ncpy))\b",
    "deque": r"std::deque\b",
    "filesystem": r"std::filesystem\b",
    "fstream": r"std::[io]?fstream\b",
    "functional": r"std::(function|bind|less|greater|hash|reference_wrapper|ref|cref|plus)\b(?!::)",
    "initializer_list|array|span|string|vector|map|set": r"std::initializer_list\b",
    "iostream": r"std::(cout|cerr|cin)\b",
    "limits": r"std::numeric_limits\b",
    "map": r"std::(multi)?map\b",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared"
              r"|enable_shared_from_this|construct_at|destroy_at)\b",
    "mutex": r"std::(mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once)\b",
    "numeric": r"std::(accumulate|iota|reduce|inner_product|partial_sum|gcd|exclusive_scan)\(",
    "optional": r"std::(optional|nullopt|make_optional)\b",
    "random": r"std::(mt19937\w*|uniform_\w+|normal_distribution|bernoulli_distribution"
              r"|random_device)\b",
    "set": r"std::(multi)?set\b",
    "span": r"std::(span|as_bytes|as_writable_bytes|dynamic_extent)\b",
    "sstream": r"std::[io]?stringstream\b",
    "string|filesystem": r"std::(string|to_string|stoi|stoul|stoull|stod|getline)\b",
    "string_view|string|filesystem": r"std::string_view\b",
    "thread": r"std::(thread|this_thread|jthread)\b",
    "tuple": r"std::(tuple|tie|make_tuple|forward_as_tuple)\b",
    "type_traits": r"std::(is_\w+_v|enable_if_t|decay_t|conditional_t|remove_\w+_t|invoke_result_t"
                   r"|underlying_type_t|make_unsigned_t|make_signed_t)\b",
    "unordered_map": r"std::unordered_map\b",
    "unordered_set": r"std::unordered_set\b",
    "utility|algorithm|memory|map|tuple|vector|string|optional|variant|functional|unordered_map":
        r"std::(move|exchange|pair|forward|swap|make_pair|index_sequence|as_const)\b",
    "variant": r"std::(variant|visit|get_if|monostate|holds_alternative)\b",
    "vector": r"std::vector\b",
    "nlohmann/json.hpp|nlohmann/json_fwd.hpp": r"\bnlohmann::",
    "fmt/core.h|fmt/format.h|fmt/ranges.h|fmt/color.h|spdlog/spdlog.h|fmt/chrono.h": r"\bfmt::",
    "uv.h": r"\buv_\w+",
    "gtest/gtest.h|gmock/gmock.h": r"\b(EXPECT|ASSERT)_[A-Z]+\(|\bTEST(_[FP])?\(",
    "gmock/gmock.h": r"\b(EXPECT|ASSERT)_THAT\(|\bHasSubstr\(|\bElementsAre\(",
}
STANDARD_RULES = [(frozenset(names.split("|")), re.compile(pattern))
                  for names, pattern in STANDARD.items()]
# What may be the home of a name: a declaration at the level of a namespace, or a macro.
DECLARATION = re.compile(
    r"^(?:class|struct|enum class|enum) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: : [\w:<> ]+)? \{"
    r"|^using (\w+) ="
    r"|^inline constexpr [\w:<>, ]+ (\w+)(?: =|\{|\[)"
    r"|^#define (\w+)", re.M)
# Whatever else may have such a name: members, enumerators, tests, messages.
ANY_DECLARATION = re.compile(
    r"\b(?:enum class|class|struct|enum|union|using|typedef|concept|message|typename)"
    r" (?:alignas\(\w+\) )?(\w+)\b(?!;)"
    r"|\bconstexpr [^=;(){]* (\w+)\s*(?:=|\{|\[|;)"
    r"|\b(?:TEST|TEST_[FP]|INSTANTIATE_TEST_SUITE_P)\((\w+),"
    r"|^#define (\w+)", re.M)
FORWARD = re.compile(r"^\s*(?:class|struct|enum class) (\w+)(?: : \w+)?;", re.M)
FOREIGN_NAME = re.compile(r"\b(?:std|prometheus|google|nlohmann|fmt|CLI|spdlog|toml)::[\w:]+")
FOREIGN_INCLUDE = re.compile(r'^\s*#\s*include\s+<([^>]+)>', re.M)


def code_of(lines: list[str]) -> str:
    """Without comments and the insides of strings."""
    return "\n".join("" if line.lstrip().startswith(("/*", "* "))
                     else re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0] for line in lines)


class Headers:
    """What our headers declare, include and bring."""

    def __init__(self, sources: dict[Path, list[str]], messages: list[str]) -> None:
        self.code = {str(path): code_of(lines) for path, lines in sources.items()}
        self.included = {str(path): [name for _, name in includes_of(lines)]
                         for path, lines in sources.items()}
        self.foreign = {name: set(FOREIGN_INCLUDE.findall(code))
                        for name, code in self.code.items()}
        self.forward = {name: set(FORWARD.findall(code)) for name, code in self.code.items()}
        # Names that our files declare once, in a header.
        homes = {}
        for name, code in self.code.items():
            for found in DECLARATION.finditer(code):
                homes[next(filter(None, found.groups()))] = name
        times = Counter(next(filter(None, found.groups()))
                        for code in [*self.code.values(), *messages]
                        for found in ANY_DECLARATION.finditer(code))
        for code in self.code.values():
            for enumerators in re.findall(r"\benum\b[^;{]*\{([^}]*)\}", code):
                times.update(re.findall(r"\bk[A-Z]\w*", enumerators))
        # Which field of a oneof there is, as protobuf names it.
        times.update("k" + "".join(part.capitalize() for part in field.split("_"))
                     for text in messages for field in re.findall(r"(\w+) = \d+;", text))
        self.home = {word: name for word, name in homes.items()
                     if times[word] == 1 and name.endswith(".h")}

    def reached(self, name: str) -> set[str]:
        found, waiting = set(), [name]
        while waiting:
            each = waiting.pop()
            if each not in found and each in self.included:
                found.add(each)
                waiting += self.included[each]
        return found


def check_names_are_included(path: Path, headers: Headers) -> list[str]:
    name = str(path)
    code, reached = headers.code[name], headers.reached(name)
    foreign = set().union(*(headers.foreign[each] for each in reached))
    forward = set().union(*(headers.forward[each] for each in reached))
    problems = []
    for asked, pattern in STANDARD_RULES:
        found = pattern.search(code)
        if found and not asked & foreign:
            line = code.count("\n", 0, found.start()) + 1
            header = min(asked, key=len)
            problems.append(f"{path}:{line}: names {found.group(0)} without <{header}>")
    words = set(re.findall(r"\b[A-Z_a-z]\w+\b", FOREIGN_NAME.sub("", code)))
    for word in sorted(words & headers.home.keys() - forward):
        if headers.home[word] not in reached:
            line = code.count("\n", 0, re.search(rf"\b{word}\b", code).start()) + 1
            problems.append(f"{path}:{line}: names {word} without {headers.home[word]}")
    return problems
