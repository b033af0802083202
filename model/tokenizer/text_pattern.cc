// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "model/tokenizer/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Most pieces match within the first; long runs of text may need more.
constexpr size_t kJitStackBytes = size_t{32} << 10;
constexpr size_t kJitStackBytesMax = size_t{8} << 20;

// General categories have one or two characters; PCRE2's own names are these.
bool is_script_name(std::string_view name) {
    if (!name.empty() && name.front() == '^') name.remove_prefix(1);
    const bool is_own = name == "Any" || name == "Xan" || name == "Xps" || name == "Xsp" ||
                        name == "Xuc" || name == "Xwd";
    return name.size() > 2 && !is_own && name.find_first_of(":=") == std::string_view::npos;
}

// The escape at the start of `rest` (a backslash and what belongs to it), translated.
std::string translate_escape(std::string_view rest, size_t& size) {
    size = std::min<size_t>(2, rest.size());
    if (rest.size() < 3 || (rest[1] != 'p' && rest[1] != 'P') || rest[2] != '{') {
        return std::string(rest.substr(0, size));
    }
    const size_t close = rest.find('}');
    if (close == std::string_view::npos) return std::string(rest.substr(0, size));
    size = close + 1;
    std::string_view name = rest.substr(3, close - 3);
    if (!is_script_name(name)) return std::string(rest.substr(0, size));
    std::string text(rest.substr(0, 3));
    if (name.front() == '^') {
        text += '^';
        name.remove_prefix(1);
    }
    return text + "sc:" + std::string(name) + "}";
}

Error unserved_construct(std::string_view pattern, const std::string& construct) {
    return unimplemented("the pattern {} uses {}, which is not supported",
                         with(pattern, construct));
}

struct CodeFree {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct DataFree {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextFree {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct StackFree {
    void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
    std::string out;
    bool is_in_set = false;
    bool is_set_start = false;  // A ']' here is an ordinary character.
    for (size_t i = 0; i < pattern.size();) {
        const char c = pattern[i];
        if (c == '\\') {
            size_t size = 0;
            out += translate_escape(pattern.substr(i), size);
            i += size;
            is_set_start = false;
            continue;
        }
        // Oniguruma and PCRE2 read these differently, and a wrong split gives wrong ids without a
        // word.
        if (is_in_set && c == '[' && pattern.substr(i, 2) != "[:") {
            return unserved_construct(pattern, "a set inside a set");
        }
        if (is_in_set && pattern.substr(i, 2) == "[:") {
            const size_t close = pattern.find(":]", i);
            if (close == std::string_view::npos)
                return unserved_construct(pattern, "an open [: class");
            out += pattern.substr(i, close + 2 - i);
            i = close + 2;
            continue;
        }
        if (is_in_set && pattern.substr(i, 2) == "&&") {
            return unserved_construct(pattern, "an intersection of sets (&&)");
        }
        if (!is_in_set && c == '[') {
            is_in_set = is_set_start = true;
        } else if (is_in_set && c == ']' && !is_set_start) {
            is_in_set = false;
        } else if (c != '^') {
            is_set_start = false;
        }
        out += c;
        ++i;
    }
    return out;
}

struct TextPattern::Impl {
    std::string literal;  // Empty: the expression below.
    std::unique_ptr<pcre2_code, CodeFree> code;
    std::unique_ptr<pcre2_match_data, DataFree> data;
    std::unique_ptr<pcre2_match_context, ContextFree> context;
    std::unique_ptr<pcre2_jit_stack, StackFree> stack;  // Null where PCRE2 has no JIT.

    // The first match in `text` at or after `start`; a negative number as PCRE2 gives it.
    int match(std::string_view text, size_t start) {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        if (stack) {
            const int count = pcre2_jit_match(
                code.get(), subject, text.size(), start, 0, data.get(), context.get());
            // The interpreter keeps its state on the heap and reaches further.
            if (count != PCRE2_ERROR_JIT_STACKLIMIT) return count;
        }
        return pcre2_match(code.get(),
                           subject,
                           text.size(),
                           start,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           data.get(),
                           context.get());
    }

    Result<> find_expression(std::string_view text, std::vector<PatternMatch>& matches);
    void find_literal(std::string_view text, std::vector<PatternMatch>& matches) const;
};

TextPattern::TextPattern(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

Result<TextPattern> TextPattern::expression(std::string_view pattern) {
    AFD_ASSIGN(const std::string translated, translate_pattern(pattern));
    int error = 0;
    PCRE2_SIZE at = 0;
    auto impl = std::make_unique<Impl>();
    // Oniguruma's ^ and $ stand at every line.
    impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                   &error,
                                   &at,
                                   nullptr));
    if (!impl->code) {
        std::array<PCRE2_UCHAR, 160> text{};
        pcre2_get_error_message(error, text.data(), text.size());
        return data_loss("the pattern {} is not accepted: {} (at byte {} of {})",
                         with(pattern, reinterpret_cast<const char*>(text.data()), at, translated));
    }
    impl->data.reset(pcre2_match_data_create_from_pattern(impl->code.get(), nullptr));
    impl->context.reset(pcre2_match_context_create(nullptr));
    // Where PCRE2 was built without JIT the interpreter gives the same matches.
    if (pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE) == 0) {
        impl->stack.reset(pcre2_jit_stack_create(kJitStackBytes, kJitStackBytesMax, nullptr));
        pcre2_jit_stack_assign(impl->context.get(), nullptr, impl->stack.get());
    }
    return TextPattern(std::move(impl));
}

TextPattern TextPattern::literal(std::string text) {
    AFD_ASSERT(!text.empty(), "an empty literal");
    auto impl = std::make_unique<Impl>();
    impl->literal = std::move(text);
    return TextPattern(std::move(impl));
}

Result<> TextPattern::find_all(std::string_view text, std::vector<PatternMatch>& matches) {
    if (impl_->literal.empty()) return impl_->find_expression(text, matches);
    impl_->find_literal(text, matches);
    return {};
}

void TextPattern::Impl::find_literal(std::string_view text,
                                     std::vector<PatternMatch>& matches) const {
    size_t begin = text.find(literal);
    while (begin != std::string_view::npos) {
        matches.push_back({begin, begin + literal.size()});
        begin = text.find(literal, begin + literal.size());
    }
}

Result<> TextPattern::Impl::find_expression(std::string_view text,
                                            std::vector<PatternMatch>& matches) {
    size_t start = 0;
    size_t last_end = std::string_view::npos;
    while (start <= text.size()) {
        const int count = match(text, start);
        if (count == PCRE2_ERROR_NOMATCH) break;
        if (count < 0) {
            return resource_exhausted(
                "splitting the text into pieces exceeds the limits of the regex engine (PCRE2 "
                "error {}); send less text at once",
                with(count));
        }
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
        const size_t begin = range[0];
        // \K can put the end before the start of the search; it would go round for ever.
        const size_t end = std::max({range[1], begin, start});
        if (begin == end && begin == last_end) {
            // The search goes on a whole character later: PCRE2 was told not to check its offsets.
            start += start < text.size() ? next_character(text.substr(start)).size : 1;
            continue;
        }
        matches.push_back({begin, end});
        start = last_end = end;
    }
    return {};
}

}  // namespace afd::model
