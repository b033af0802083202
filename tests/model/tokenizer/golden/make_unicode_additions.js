// SPDX-License-Identifier: Apache-2.0
// Writes the table of model/unicode/unicode_additions.cc: what Unicode has added since version 14,
// as far as the tokenizers library knows it.
//
//     npm install --prefix DIR tokenizers@0.23.2
//     apt-get install unicode-data
//     NODE_PATH=DIR/node_modules node make_unicode_additions.js
//
// Which code points have an age of at most 14 is from Debian's unicode-data, the categories are from
// the library itself; the scripts are node's, whose Unicode is at least as new.
'use strict';
const fs = require('fs');
const {Tokenizer} = require('tokenizers');

const AGE_MAX = 14;
const AGES = '/usr/share/unicode/DerivedAge.txt';
const categories = ['Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'Mn', 'Mc', 'Me', 'Nd', 'Nl', 'No', 'Pc', 'Pd', 'Ps',
                    'Pe', 'Pi', 'Pf', 'Po', 'Sm', 'Sc', 'Sk', 'So', 'Zs', 'Zl', 'Zp', 'Cc', 'Cf'];

function oldCodePoints() {
  const old = new Uint8Array(0x110000);
  for (const line of fs.readFileSync(AGES, 'utf8').split('\n')) {
    const found = /^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*([\d.]+)/.exec(line);
    if (!found || Number(found[3]) > AGE_MAX) continue;
    const first = parseInt(found[1], 16);
    old.fill(1, first, parseInt(found[2] || found[1], 16) + 1);
  }
  return old;
}

// The code points that the library's \p{category} matches.
function matched(category, candidates) {
  const options = {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
                   end_of_word_suffix: null, fuse_unk: false, byte_fallback: false,
                   ignore_merges: false, vocab: {a: 0}, merges: []};
  const file = {version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null,
                pre_tokenizer: {type: 'Split', pattern: {Regex: `\\p{${category}}`},
                                behavior: 'Removed', invert: true},
                post_processor: null, decoder: null, model: options};
  const step = Tokenizer.fromString(JSON.stringify(file)).getPreTokenizer();
  const found = [];
  for (let i = 0; i < candidates.length; i += 4096) {
    const text = String.fromCodePoint(...candidates.slice(i, i + 4096));
    for (const [piece] of step.preTokenizeString(text)) {
      for (const character of piece) found.push(character.codePointAt(0));
    }
  }
  return found;
}

const old = oldCodePoints();
const candidates = [];
for (let point = 1; point < 0x110000; ++point) {
  if (!old[point] && (point < 0xD800 || point > 0xDFFF)) candidates.push(point);
}
const category = new Map();
for (const name of categories) {
  for (const point of matched(name, candidates)) category.set(point, name);
}
// Scripts that any of them is of.
const scripts = ['Common', 'Inherited', 'Arabic', 'Balinese', 'Cyrillic', 'Devanagari', 'Egyptian_Hieroglyphs',
                 'Garay', 'Gurung_Khema', 'Han', 'Hiragana', 'Kannada', 'Katakana', 'Kawi', 'Khitan_Small_Script', 'Khojki',
                 'Kirat_Rai', 'Lao', 'Latin', 'Myanmar', 'Nag_Mundari', 'Ol_Onal', 'Sunuwar', 'Telugu',
                 'Todhri', 'Tulu_Tigalari'].map((name) => [name, new RegExp(`^\\p{sc=${name}}$`, 'u')]);
const rows = [];
for (const [point, name] of [...category].sort((a, b) => a[0] - b[0])) {
  const script = scripts.find(([, pattern]) => pattern.test(String.fromCodePoint(point)));
  if (!script) throw new Error(`U+${point.toString(16)} is of a script that is not listed`);
  const last = rows[rows.length - 1];
  if (last && last[1] === point - 1 && last[2] === name && last[3] === script[0]) {
    last[1] = point;
  } else {
    rows.push([point, point, name, script[0]]);
  }
}
const hex = (point) => `0x${point.toString(16).toUpperCase()}`;
for (const [first, last, name, script] of rows) {
  console.log(`    {${hex(first)}, ${hex(last)}, "${name}", "${script}"},`);
}
