// SPDX-License-Identifier: Apache-2.0
// Texts that find differences between tokenizers, and lists of ids, from a seed.
'use strict';

function random(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6D2B79F5) >>> 0;
    let t = Math.imul(state ^ state >>> 15, state | 1);
    t ^= t + Math.imul(t ^ t >>> 7, t | 61);
    return ((t ^ t >>> 14) >>> 0) % limit;
  };
}

// A word or two of each script.
const words = [
  'the', 'She', 'was', 'years', 'HTTPServer', "don't", "WE'LL", 'naïve', 'Über', 'straße', 'İstanbul',
  'Ωμέγα', 'ΣΊΣΥΦΟΣ', 'Москва', 'йод', 'ё', 'Հայերեն', 'ქართული', 'עברית', 'שָׁלוֹם', 'العربية', 'مُحَمَّد',
  'हिन्दी', 'ক্ষ', 'தமிழ்', 'ไทย', 'ภาษา', 'ລາວ', 'አማርኛ', 'ᏣᎳᎩ', 'ភាសា', '中文', '测试', '日本語', 'ひらがな',
  'カタカナ', 'ｶﾀｶﾅ', '한국어', '각', 'Tiếng Việt', '𝔘𝔫𝔦', 'ﬁne', 'ＦＵＬＬ', '①②', '½', '٣٤٥', '௧௨', 'Ⅷ',
  '1234567', '3.14', '0x1F', 'K', 'Å', 'é', 'ạ̈̄', 'ẛ̣',
];
const signs = [
  ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', ' \n ', '\u00a0', '\u2003', '\u3000', '\u180e', '\u200b',
  '\u0085', '\u2028', '.', ',', '!', '?!', '...', '，', '。', '、', '！', '「', '」', '¿', '–', '—', '…', '"', "'", '’',
  '(', ')', '[', ']', '{', '}', '<', '>', '=', '==', '->', '::', '/', '\\', '|', '||', '&&', '+', '-', '--',
  '*', '%', '$', '€', '₿', '#', '@', '^', '_', '__', '~', '`', '🙂', '👩‍👩‍👧', '🇩🇪', '❤️', '🫨', '🪿', '\u0301', '\u0327',
  '\u093c', '𠀀', '\u{31350}', '\u{2ebf0}', '\u{1d2c0}', '▁', 'Ġ', '<0x41>',
];
const specials = [
  '<|begin|>', '<|end|>', '<tool>', '<tool>x', '<left>', '<right>', '<both>', '<word>', '<NFC é>',
  '<norm>', ' <left>', '<right>  ', 'a<word>b', ' <word> ', '<Upper>', '<upper>', 'öö',
];
const lines = [
  'for (int i = 0; i < n; ++i) {\n    sum += x[i] * 2.5e-3f;  // total\n}\n',
  'def f(self, *args, **kwargs) -> None:\n\treturn {k: v for k, v in kwargs.items()}\n\n\n',
  '#include <vector>\r\n#define MAX(a,b) ((a)>(b)?(a):(b))\r\n',
  'SELECT * FROM t WHERE name = \'O\'\'Neil\' AND id >= 10;',
  '{"key": [1, 2.0, null, true], "text": "a\\nb"}',
  'https://example.org/a-b_c?d=1&e=%20#frag',
  'The quick brown fox jumps over 1234567 lazy dogs.',
  "I'm sure they'd've said 'it's OK', won't you?",
  '    indented\n        more\n\n  \n\t\tend   ',
  '| a | b |\n|---|---|\n| 1 | 2 |\n',
];

function codePoint(next) {
  const kind = next(8);
  const limit = [0x80, 0x100, 0x800, 0x3000, 0x10000, 0x20000, 0x32400, 0x110000][kind];
  const value = 1 + next(limit - 1);
  return value >= 0xD800 && value < 0xE000 ? 0x4E00 + next(0x5000) : value;
}

function makeText(next) {
  const kind = next(10);
  let text = '';
  if (kind === 0) return lines[next(lines.length)] + lines[next(lines.length)];
  if (kind === 1) {
    for (let i = 1 + next(30); i > 0; --i) text += String.fromCodePoint(codePoint(next));
    return text;
  }
  if (kind === 2) {
    const blanks = [' ', '\n', '\t', '\r', '\u00a0', '\u3000', 'a', '。'];
    for (let i = 1 + next(12); i > 0; --i) text += blanks[next(blanks.length)].repeat(1 + next(4));
    return text;
  }
  const withSpecials = kind < 6;
  for (let i = 1 + next(14); i > 0; --i) {
    const pick = next(withSpecials ? 4 : 3);
    const list = [words, signs, [' '], specials][pick];
    text += list[next(list.length)];
  }
  return text;
}

function makeTexts(count, seed) {
  const next = random(seed);
  const texts = ['', ' ', 'a', '\n', '<|begin|>', ...lines];
  while (texts.length < count) texts.push(makeText(next));
  return texts;
}

function makeIds(count, limit, seed) {
  const next = random(seed + 1);
  const lists = [];
  while (lists.length < count) {
    const list = [];
    // Low ids are the bytes, which break characters in every way.
    const isLow = next(2) === 0;
    for (let i = next(24); i >= 0; --i) list.push(next(isLow ? 264 : limit));
    lists.push(list);
  }
  return lists;
}

// FNV-1a over the little-endian bytes of 32-bit numbers.
function hashOf(numbers) {
  let hash = 0xcbf29ce484222325n;
  for (const number of numbers) {
    for (let shift = 0; shift < 32; shift += 8) {
      hash = BigInt.asUintN(64, (hash ^ BigInt(number >>> shift & 255)) * 0x100000001b3n);
    }
  }
  return hash.toString(16).padStart(16, '0');
}

module.exports = {makeTexts, makeIds, hashOf};
