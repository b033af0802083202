// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/text_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>

#include "model/unicode/new_characters.h"
#include "model/unicode/pattern_translator.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Most pieces match within the first; long runs of text may need more.
constexpr size_t kJitStackBytes = size_t{32} << 10;
constexpr size_t kJitStackBytesMax = size_t{8} << 20;

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

// An expression as PCRE2 runs it.
class CompiledPattern {
  public:
    static Result<CompiledPattern> compile(std::string_view pattern, const std::string& translated);

    // The first match in `text` at or after `start`; a negative number as PCRE2 gives it.
    int match(std::string_view text, size_t start) {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        if (stack_) {
            const int count = pcre2_jit_match(
                code_.get(), subject, text.size(), start, 0, data_.get(), context_.get());
            // The interpreter keeps its state on the heap and reaches further.
            if (count != PCRE2_ERROR_JIT_STACKLIMIT) return count;
        }
        return pcre2_match(code_.get(),
                           subject,
                           text.size(),
                           start,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           data_.get(),
                           context_.get());
    }

    // Of the last match().
    PatternMatch last_match() const {
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
        return {range[0], range[1]};
    }

  private:
    std::unique_ptr<pcre2_code, CodeFree> code_;
    std::unique_ptr<pcre2_match_data, DataFree> data_;
    std::unique_ptr<pcre2_match_context, ContextFree> context_;
    std::unique_ptr<pcre2_jit_stack, StackFree> stack_;  // Null where PCRE2 has no JIT.
};

Result<CompiledPattern> CompiledPattern::compile(std::string_view pattern,
                                                 const std::string& translated) {
    int error = 0;
    PCRE2_SIZE at = 0;
    CompiledPattern compiled;
    // Oniguruma's ^ and $ stand at every line.
    compiled.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                       translated.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                       &error,
                                       &at,
                                       nullptr));
    if (!compiled.code_) {
        std::array<PCRE2_UCHAR, 160> text{};
        pcre2_get_error_message(error, text.data(), text.size());
        return data_loss("the pattern {} is not accepted: {} (at byte {} of {})",
                         with(pattern, reinterpret_cast<const char*>(text.data()), at, translated));
    }
    compiled.data_.reset(pcre2_match_data_create_from_pattern(compiled.code_.get(), nullptr));
    compiled.context_.reset(pcre2_match_context_create(nullptr));
    // Where PCRE2 was built without JIT the interpreter gives the same matches.
    if (pcre2_jit_compile(compiled.code_.get(), PCRE2_JIT_COMPLETE) == 0) {
        compiled.stack_.reset(pcre2_jit_stack_create(kJitStackBytes, kJitStackBytesMax, nullptr));
        pcre2_jit_stack_assign(compiled.context_.get(), nullptr, compiled.stack_.get());
    }
    return compiled;
}

struct TextPattern::Impl {
    std::string literal;  // Empty: the expression below.
    std::optional<CompiledPattern> for_old_texts;
    std::optional<CompiledPattern> for_all_texts;  // None: the other is right about all.

    Result<> find_expression(std::string_view text,
                             std::vector<PatternMatch>& matches,
                             bool is_old);
    void find_literal(std::string_view text, std::vector<PatternMatch>& matches) const;
};

TextPattern::TextPattern(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

Result<TextPattern> TextPattern::expression(std::string_view pattern) {
    AFD_ASSIGN(const std::string old, translate_pattern(pattern, PatternUse::kOldTexts));
    AFD_ASSIGN(const std::string all, translate_pattern(pattern, PatternUse::kAllTexts));
    auto impl = std::make_unique<Impl>();
    AFD_ASSIGN(impl->for_old_texts, CompiledPattern::compile(pattern, old));
    if (all != old) {
        AFD_ASSIGN(impl->for_all_texts, CompiledPattern::compile(pattern, all));
    }
    return TextPattern(std::move(impl));
}

TextPattern TextPattern::literal(std::string text) {
    AFD_ASSERT(!text.empty(), "an empty literal");
    auto impl = std::make_unique<Impl>();
    impl->literal = std::move(text);
    return TextPattern(std::move(impl));
}

Result<> TextPattern::find_all(std::string_view text,
                               std::vector<PatternMatch>& matches,
                               bool is_old) {
    if (impl_->literal.empty()) return impl_->find_expression(text, matches, is_old);
    impl_->find_literal(text, matches);
    return {};
}

Result<std::string> TextPattern::replaced(std::string_view text,
                                          std::string_view content,
                                          size_t bytes_max) {
    std::vector<PatternMatch> matches;
    AFD_TRY(find_all(text, matches));
    if (text.size() + matches.size() * content.size() > bytes_max) {
        return resource_exhausted(
            "tokenizer.json replaces {} matches by {} bytes each, which could make more than {} "
            "bytes of the text; a step that replaces less is needed",
            with(matches.size(), content.size(), bytes_max));
    }
    std::string out;
    size_t done = 0;
    for (const PatternMatch& match : matches) {
        out += text.substr(done, match.begin - done);
        out += content;
        done = match.end;
    }
    return out += text.substr(done);
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
                                            std::vector<PatternMatch>& matches,
                                            bool is_old) {
    is_old = is_old || !for_all_texts || !has_new_characters(text);
    CompiledPattern& compiled = is_old ? *for_old_texts : *for_all_texts;
    size_t start = 0;
    size_t last_end = std::string_view::npos;
    while (start <= text.size()) {
        const int count = compiled.match(text, start);
        if (count == PCRE2_ERROR_NOMATCH) break;
        if (count < 0) {
            return resource_exhausted(
                "splitting the text into pieces exceeds the limits of the regex engine (PCRE2 "
                "error {}); send less text at once",
                with(count));
        }
        const auto [begin, range_end] = compiled.last_match();
        // \K in a look-around, which PCRE2 takes before 10.38, can put the end before the start of
        // the search; it would go round for ever.
        const size_t end = std::max({range_end, begin, start});
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
