// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/pattern_translator.h"

#include <cctype>
#include <cstddef>
#include <vector>

#include "model/unicode/unicode_additions.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// What Oniguruma's \s and \w are, as bodies of sets; the categories still get their additions.
constexpr const char* kBlank = R"(\t-\r\x{85}\p{Z})";
// Beside letters, marks and digits: the circled letters and the numbers of Latin-1.
constexpr const char* kOtherWord = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9})"
                                   R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
// PCRE2 takes the Mongolian vowel separator for a blank.
constexpr const char* kNotBlank = R"(\S\x{180E})";
constexpr const char* kHexadecimal = "0-9A-Fa-f";
constexpr const char* kAnyCharacter = R"([\s\S])";
// Letters that mean the same after a backslash, or are translated. Of the others PCRE2 takes some
// for commands that Oniguruma does not have: \C would tear characters, \Q quote.
constexpr std::string_view kServedEscapes = "AKRXZabefgknrtuvxz";

// Expressions of models have some hundred bytes and nest twice.
constexpr size_t kPatternBytesMax = size_t{16} << 10;
constexpr int kSetNestingMax = 64;

// Property names are the same whatever their case, blanks and underscores.
std::string loose_name(std::string_view name) {
    std::string loose;
    for (const char c : name) {
        if (c == '_' || c == '-' || c == ' ') continue;
        loose += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return loose;
}

// General categories have one or two characters; PCRE2's own names are these.
bool is_script_name(std::string_view name) {
    const bool is_own = name == "Any" || name == "Xan" || name == "Xps" || name == "Xsp" ||
                        name == "Xuc" || name == "Xwd";
    return name.size() > 2 && !is_own && name.find_first_of(":=") == std::string_view::npos;
}

// Ranges for a set: what was added to the category or script.
std::string additions_to(std::string_view name) {
    const std::string loose = loose_name(name);
    std::string ranges;
    for (const UnicodeAddition& addition : unicode_additions()) {
        const bool is_in_category = loose_name(addition.category).starts_with(loose);
        if (!is_in_category && loose_name(addition.script) != loose) continue;
        ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", addition.first, addition.last);
    }
    return ranges;
}

// A set of characters on its way to PCRE2: `body` goes between brackets; each of `others` is an
// expression for one character that cannot.
struct CharacterSet {
    std::string body;
    std::vector<std::string> others;

    std::string expression(bool is_negated) const {
        const std::string simple = (is_negated ? "[^" : "[") + body + "]";
        if (others.empty()) return simple;
        std::string any = body.empty() ? "" : "[" + body + "]";
        for (const std::string& other : others) any += (any.empty() ? "" : "|") + other;
        return is_negated ? "(?:(?!" + any + ")" + kAnyCharacter + ")" : "(?:" + any + ")";
    }
};

class PatternTranslator {
  public:
    PatternTranslator(std::string_view pattern, PatternUse use) : pattern_(pattern), use_(use) {}

    Result<std::string> run() {
        while (at_ < pattern_.size()) AFD_TRY(take_one());
        return std::move(out_);
    }

  private:
    bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
    char next() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

    size_t character_bytes(size_t at) const {
        size_t size = 1;
        while (at + size < pattern_.size() &&
               (static_cast<unsigned char>(pattern_[at + size]) & 0xC0) == 0x80) {
            ++size;
        }
        return size;
    }

    Error unserved_construct(const std::string& construct) const {
        return unimplemented("the pattern {} uses {}, which is not supported",
                             with(pattern_, construct));
    }

    std::string additions(std::string_view name) const {
        return use_ == PatternUse::kAllTexts ? additions_to(name) : "";
    }

    std::string property_body(std::string_view name) const {
        const std::string prefix = is_script_name(name) ? "sc:" : "";
        return "\\p{" + prefix + std::string(name) + "}" + additions(name);
    }

    std::string word_body() const {
        return property_body("L") + property_body("M") + property_body("Nd") + property_body("Nl") +
               property_body("Pc") + kOtherWord;
    }

    std::string blank_body(bool is_negated) const {
        if (use_ == PatternUse::kOldTexts) return is_negated ? "\\S" : "\\s";
        return is_negated ? kNotBlank : kBlank;
    }

    Result<> take_one();
    Result<> take_group();
    void take_repetition();
    Result<> take_escape();
    Result<std::string> take_set();
    Result<CharacterSet> take_union();
    bool take_class(CharacterSet& set);
    Result<std::string> take_literal_escape();
    void put_atom(const std::string& text) {
        atom_ = out_.size();
        out_ += text;
    }

    std::string_view pattern_;
    PatternUse use_;
    size_t at_ = 0;
    std::string out_;
    size_t atom_ = 0;             // In `out_`, where the last thing that can be repeated begins.
    std::vector<size_t> groups_;  // The same for the groups that are open.
    int num_open_sets_ = 0;
};

Result<> PatternTranslator::take_one() {
    switch (next()) {
        case '\\':
            return take_escape();
        case '[': {
            AFD_ASSIGN(const std::string set, take_set());
            put_atom(set);
            return {};
        }
        case '(':
            return take_group();
        case ')':
            if (!groups_.empty()) {
                atom_ = groups_.back();
                groups_.pop_back();
            }
            break;
        case '{':
            take_repetition();
            return {};
        case '*':
        case '+':
        case '?':
            break;
        default: {
            // A whole character, which is what a repetition after it repeats.
            const size_t size = character_bytes(at_);
            put_atom(std::string(pattern_.substr(at_, size)));
            at_ += size;
            return {};
        }
    }
    out_ += pattern_[at_++];
    return {};
}

Result<> PatternTranslator::take_group() {
    groups_.push_back(out_.size());
    const size_t end = pattern_.find_first_of(":)", at_);
    const std::string_view options =
        sees("(?") && end != std::string_view::npos ? pattern_.substr(at_ + 2, end - at_ - 2) : "";
    const bool is_options =
        !options.empty() && options.find_first_not_of("imxa-") == std::string_view::npos;
    // Ruby's m lets the dot match a newline, PCRE2's lets ^ and $ match at lines.
    if (is_options && options.find('m') != std::string_view::npos) {
        return unserved_construct("the option (?m)");
    }
    out_ += '(';
    ++at_;
    if (next() != '?') return {};
    // What follows is no repetition.
    out_ += '?';
    ++at_;
    return {};
}

void PatternTranslator::take_repetition() {
    const size_t close = pattern_.find('}', at_);
    const std::string_view inner =
        close == std::string_view::npos ? "" : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool is_interval = !inner.empty() && inner != "," &&
                             inner.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!is_interval) {
        put_atom("\\{");
        ++at_;
        return;
    }
    out_ += (inner.front() == ',' ? "{0" : "{") + std::string(inner) + "}";
    at_ = close + 1;
    const bool is_exact = inner.find(',') == std::string_view::npos;
    if (next() == '+' || (next() == '?' && is_exact)) {
        out_.insert(atom_, "(?:");
        out_ += ')';
    }
}

Result<> PatternTranslator::take_escape() {
    CharacterSet set;
    if (take_class(set)) {
        put_atom(set.expression(false));
        return {};
    }
    if (sees("\\b") || sees("\\B")) {
        const std::string word = "[" + word_body() + "]";
        const bool is_boundary = sees("\\b");
        put_atom("(?:(?<=" + word + ")(?" + (is_boundary ? "!" : "=") + word + ")|(?<!" + word +
                 ")(?" + (is_boundary ? "=" : "!") + word + "))");
        at_ += 2;
        return {};
    }
    AFD_ASSIGN(const std::string text, take_literal_escape());
    put_atom(text);
    return {};
}

// An escape that means the same in both, but for \u and \v.
Result<std::string> PatternTranslator::take_literal_escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const bool is_letter = std::isalpha(static_cast<unsigned char>(letter)) != 0;
    if (is_letter && kServedEscapes.find(letter) == std::string_view::npos) {
        return unserved_construct(std::string("the escape \\") + letter);
    }
    if (letter == 'v') {
        at_ += 2;
        return std::string("\\x{B}");
    }
    if (letter == 'u' && at_ + 6 <= pattern_.size()) {
        const std::string digits(pattern_.substr(at_ + 2, 4));
        at_ += 6;
        return "\\x{" + digits + "}";
    }
    const size_t close = pattern_.find('}', at_);
    size_t size = letter == '\0' ? 1 : 1 + character_bytes(at_ + 1);
    if (sees("\\x{") && close != std::string_view::npos) {
        size = close + 1 - at_;
    } else if (letter == 'x') {
        const auto is_digit = [this](size_t at) {
            return at < pattern_.size() &&
                   std::isxdigit(static_cast<unsigned char>(pattern_[at])) != 0;
        };
        while (size < 4 && is_digit(at_ + size)) ++size;
    }
    const std::string text(pattern_.substr(at_, size));
    at_ += text.size();
    return text;
}

// A class of characters (\p{..}, \s, ...) at the current place into `set`; false if there is none.
bool PatternTranslator::take_class(CharacterSet& set) {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    std::string body;
    switch (std::tolower(static_cast<unsigned char>(letter))) {
        case 's':
            set.body += blank_body(letter == 'S');
            at_ += 2;
            return true;
        case 'd':
            body = property_body("Nd");
            break;
        case 'w':
            body = word_body();
            break;
        case 'h':
            body = kHexadecimal;
            break;
        case 'p':
            break;
        default:
            return false;
    }
    bool is_negated = std::isupper(static_cast<unsigned char>(letter)) != 0;
    size_t size = 2;
    if (body.empty()) {
        const size_t close = pattern_.find('}', at_);
        if (close == std::string_view::npos || pattern_[at_ + 2] != '{') return false;
        std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
        if (name.starts_with('^')) {
            is_negated = !is_negated;
            name.remove_prefix(1);
        }
        size = close + 1 - at_;
        body = property_body(name);
        // What was added is no longer among the unassigned.
        if (use_ == PatternUse::kAllTexts && (name == "C" || name == "Cn")) {
            at_ += size;
            std::string assigned = name == "Cn" ? additions("C") : "";
            for (const char* category : {"L", "M", "N", "P", "S", "Z"}) {
                assigned += additions(category);
            }
            if (is_negated) set.body += "\\P{" + std::string(name) + "}" + assigned;
            if (!is_negated) {
                set.others.push_back("(?![" + assigned + "])\\p{" + std::string(name) + "}");
            }
            return true;
        }
    }
    at_ += size;
    if (is_negated) {
        set.others.push_back("[^" + body + "]");
    } else {
        set.body += body;
    }
    return true;
}

// What stands between && or brackets.
Result<CharacterSet> PatternTranslator::take_union() {
    CharacterSet set;
    bool is_start = true;
    while (at_ < pattern_.size() && !sees("&&") && (next() != ']' || is_start)) {
        if (next() == '\\' && take_class(set)) {
            // No range begins with a class, but its translation may end with a character.
            if (next() == '-') {
                set.body += "\\-";
                ++at_;
            }
        } else if (next() == '\\') {
            AFD_ASSIGN(const std::string text, take_literal_escape());
            set.body += text;
        } else if (sees("[:")) {
            const size_t close = pattern_.find(":]", at_);
            if (close == std::string_view::npos) return unserved_construct("an open [: class");
            set.body += pattern_.substr(at_, close + 2 - at_);
            at_ = close + 2;
        } else if (next() == '[') {
            AFD_ASSIGN(std::string inner, take_set());
            set.others.push_back(std::move(inner));
        } else {
            // A ']' at the start is an ordinary character.
            if (next() == ']') set.body += '\\';
            set.body += pattern_[at_++];
        }
        is_start = false;
    }
    return set;
}

Result<std::string> PatternTranslator::take_set() {
    // The depth is the file's to choose, and this recurses.
    if (++num_open_sets_ > kSetNestingMax) {
        return unserved_construct(fmt::format("sets in more than {} others", kSetNestingMax - 1));
    }
    ++at_;
    const bool is_negated = next() == '^';
    if (is_negated) ++at_;
    AFD_ASSIGN(const CharacterSet first, take_union());
    std::string all = first.expression(!sees("&&") && is_negated);
    bool is_intersection = false;
    while (sees("&&")) {
        at_ += 2;
        AFD_ASSIGN(const CharacterSet other, take_union());
        all = "(?=" + other.expression(false) + ")" + all;
        is_intersection = true;
    }
    if (next() != ']') return unserved_construct("a set without its end");
    ++at_;
    --num_open_sets_;
    if (!is_intersection) return all;
    return is_negated ? "(?:(?!" + all + ")" + kAnyCharacter + ")" : "(?:" + all + ")";
}

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern, PatternUse use) {
    if (pattern.size() > kPatternBytesMax) {
        return unimplemented("a pattern has {} bytes; supported: at most {}",
                             with(pattern.size(), kPatternBytesMax));
    }
    if (pattern == "\\s+$") pattern = "(?<!\\s)\\s+$";
    return PatternTranslator(pattern, use).run();
}

}  // namespace afd::model
