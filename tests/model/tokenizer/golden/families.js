// SPDX-License-Identifier: Apache-2.0
// The tokenizers that golden.json is of: what the families of models ask for, over two small
// vocabularies, and what no family combines so far.
'use strict';

const byteLevel = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false};
const split = (regex, behavior = 'Isolated', invert = false) =>
    ({type: 'Split', pattern: {Regex: regex}, behavior, invert});
const literal = (text, behavior, invert = false) =>
    ({type: 'Split', pattern: {String: text}, behavior, invert});
const sequence = (...steps) => ({type: 'Sequence', pretokenizers: steps});
const digits = (individual) => ({type: 'Digits', individual_digits: individual});
const punctuation = (behavior) => ({type: 'Punctuation', behavior});
const normalizers = (...steps) => ({type: 'Sequence', normalizers: steps});
const replace = (pattern, content) => ({type: 'Replace', pattern, content});

function added(id, content, options = {}) {
  return {id, content, single_word: false, lstrip: false, rstrip: false, normalized: false,
          special: true, ...options};
}

// The first two ids of either vocabulary are special; some more tokens come behind it.
function tokens(size, ...more) {
  const list = [added(0, '<|begin|>'), added(1, '<|end|>')];
  for (const [content, options] of more) list.push(added(size + list.length - 2, content, options));
  return list;
}

const BYTES = 2048, CHARACTERS = 1200;
const plain = {special: false, normalized: true};
const someTokens = (size) => tokens(size, ['<tool>', {special: false}], ['<tool>x', plain]);
const strippingTokens = (size) => tokens(
    size, ['<left>', {lstrip: true}], ['<right>', {rstrip: true}],
    ['<both>', {lstrip: true, rstrip: true, special: false}], ['<word>', {single_word: true}],
    ['<NFC é>', plain], ['<Upper>', plain], ['öö', {special: false}]);

const V3 = sequence(
    split('\\p{N}{1,3}'), split('[一-龥぀-ゟ゠-ヿ]+'),
    split('[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|' +
          ' ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'),
    byteLevel);
const V2 = sequence(
    split('[\\r\\n]'),
    split('\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓΆΈ-ΊΌΎ-ΡΣ-ϵҊ-ԯԱ-ՖႠ-ჅᲐ-ᲺḀ-ἕℂK-ℭⰀ-ⱻﬀ-ﬆＡ-Ｚａ-ｚ𐐀-𐑏𞤀-𞥃]+'),
    split('\\s?[!-/:-~！-／：-～‘-‟　-。]+'), split('\\s+$'), split('[一-龥ࠀ-一가-퟿]+'), digits(true),
    byteLevel);
const QWEN = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
    '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const GLM = QWEN.replace('|\\p{N}|', '|\\p{N}{1,3}|');
const upper = '\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}', lower = '\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}';
const endings = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const GPT4O = `[^\\r\\n\\p{L}\\p{N}]?[${upper}]*[${lower}]+${endings}|` +
    `[^\\r\\n\\p{L}\\p{N}]?[${upper}]+[${lower}]*${endings}|` +
    '\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

const notHan = (classes) => `[${classes}&&[^\\p{Han}]]`;
const KIMI = '[\\p{Han}]+|' +
    `[^\\r\\n\\p{L}\\p{N}]?${notHan(upper)}*${notHan(lower)}+${endings}|` +
    `[^\\r\\n\\p{L}\\p{N}]?${notHan(upper)}+${notHan(lower)}*${endings}|` +
    '\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

const template = (single) => ({
  type: 'TemplateProcessing', single, pair: [],
  special_tokens: {'<|begin|>': {id: '<|begin|>', ids: [0], tokens: ['<|begin|>']},
                   '<|end|>': {id: '<|end|>', ids: [1], tokens: ['<|end|>']}}});
const text = {Sequence: {id: 'A', type_id: 0}};
const begin = {SpecialToken: {id: '<|begin|>', type_id: 0}};
const end = {SpecialToken: {id: '<|end|>', type_id: 0}};

const llamaDecoder = {type: 'Sequence', decoders: [
  replace({String: '▁'}, ' '), {type: 'ByteFallback'}, {type: 'Fuse'},
  {type: 'Strip', content: ' ', start: 1, stop: 0}]};
const metaspace = (options) => ({type: 'Metaspace', replacement: '▁', ...options});
const llamaNormalizer = normalizers({type: 'Prepend', prepend: '▁'}, replace({String: ' '}, '▁'));

const bytes = (pre_tokenizer, more = {}) => ({
  model: 'bytes', added_tokens: someTokens(BYTES), normalizer: null, pre_tokenizer,
  decoder: byteLevel, ...more});
const characters = (pre_tokenizer, more = {}) => ({
  model: 'characters', added_tokens: someTokens(CHARACTERS), normalizer: null, pre_tokenizer,
  decoder: llamaDecoder, ...more});

const families = {
  deepseek_v3: bytes(V3),
  deepseek_v2: bytes(V2),
  qwen: bytes(sequence(split(QWEN), byteLevel), {normalizer: {type: 'NFC'}}),
  glm: bytes(sequence(split(GLM), byteLevel), {model_options: {ignore_merges: true}}),
  llama3: bytes(sequence(split(GLM), byteLevel), {
    model_options: {ignore_merges: true},
    post_processor: {type: 'Sequence', processors: [byteLevel, template([begin, text])]}}),
  gpt2: bytes({...byteLevel, add_prefix_space: true, use_regex: true}),
  olmoe: bytes({...byteLevel, use_regex: true}, {
    normalizer: {type: 'NFC'},
    added_tokens: tokens(BYTES, ['   ', plain], ['  ', plain], ['<norm>', {special: false}]),
    post_processor: template([text, end])}),
  gpt4o: bytes(sequence(split(GPT4O), byteLevel), {post_processor: template([begin, text, end])}),
  kimi: bytes(sequence(split(KIMI), byteLevel), {model_options: {ignore_merges: true}}),
  mixtral: characters(null, {normalizer: llamaNormalizer, post_processor: template([begin, text])}),
  mixtral_metaspace: characters(metaspace({prepend_scheme: 'first', split: false})),
  phi: characters(null, {normalizer: llamaNormalizer, added_tokens: strippingTokens(CHARACTERS)}),
  metaspace: characters(metaspace({prepend_scheme: 'always'}), {
    decoder: metaspace({prepend_scheme: 'always', split: true})}),
  metaspace_never: characters(metaspace({prepend_scheme: 'never', split: true}), {
    decoder: {type: 'Sequence', decoders: [
      metaspace({prepend_scheme: 'never', split: true}), {type: 'ByteFallback'}, {type: 'Fuse'}]}}),
  stripping: bytes(V3, {added_tokens: strippingTokens(BYTES)}),
  stripping_normalized: bytes(sequence(split(QWEN), byteLevel), {
    normalizer: normalizers({type: 'NFC'}, {type: 'Lowercase'}),
    added_tokens: strippingTokens(BYTES)}),
  nfkc_lowercase: bytes(sequence(split(QWEN), byteLevel), {
    normalizer: normalizers({type: 'NFKC'}, {type: 'Lowercase'})}),
  nfd_replace: bytes(sequence(split(QWEN), byteLevel), {
    normalizer: normalizers({type: 'NFD'}, replace({Regex: '\\p{Mn}+|[0-9]'}, ''),
                            replace({String: '--'}, '–'), {type: 'Prepend', prepend: '>'})}),
  nfkd: bytes(sequence(split(QWEN), byteLevel), {normalizer: {type: 'NFKD'}}),
  digits_punctuation: bytes(sequence(digits(false), punctuation('Isolated'), byteLevel)),
  removed: bytes(sequence(split('\\s+', 'Removed'), punctuation('Removed'), byteLevel)),
  removed_metaspace: characters(sequence(literal('.', 'Removed'),
                                         metaspace({prepend_scheme: 'first', split: true}))),
  contiguous: bytes(sequence(split('[aeiou ]', 'Contiguous'), punctuation('Contiguous'), byteLevel)),
  merged: bytes(sequence(split('[\\s\\p{P}]', 'MergedWithPrevious'),
                         punctuation('MergedWithNext'), byteLevel)),
  merged_next: bytes(sequence(literal(' ', 'MergedWithNext'),
                              punctuation('MergedWithPrevious'), byteLevel)),
  inverted: bytes(sequence(split('\\p{L}+', 'Removed', true), split('[a-m]', 'MergedWithNext', true),
                           split('[aeiou]', 'MergedWithPrevious', true), byteLevel)),
  inverted_contiguous: bytes(sequence(split('\\p{L}', 'Contiguous', true),
                                      literal('--', 'Isolated', true), byteLevel)),
  empty_matches: bytes(sequence(split('x*'), split('$|\\b', 'MergedWithPrevious'), byteLevel)),
  possessive: bytes(sequence(split('\\p{L}++|\\p{N}{1,2}+|\\h{2}?|\\P{L}?+'), byteLevel)),
  categories: bytes(sequence(split('[\\p{C}\\p{Z}]'), split('[\\p{Sm}\\p{Sc}\\p{Sk}]+'),
                             split('[^\\p{Lo}\\p{Lm}\\P{L}]+'), split('[\\P{N}&&\\W]'), byteLevel)),
  classes: bytes(sequence(split('\\w+'), split('\\d+'), split('\\s'), split('\\p{Han}+'),
                          split('[\\p{Hiragana}\\p{Katakana}]+'), byteLevel)),
};

// `demo`: the demo model's tokenizer.json, whose first merges both vocabularies have.
function models(demo) {
  const options = {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
                   end_of_word_suffix: null, fuse_unk: false, ignore_merges: false};
  const bytesModel = {...options, byte_fallback: false, vocab: demo.model.vocab,
                      merges: demo.model.merges};
  const entries = ['<|begin|>', '<|end|>'];
  for (let byte = 0; byte < 256; ++byte) {
    entries.push(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  }
  for (let code = 0x21; code < 0x7F; ++code) entries.push(String.fromCharCode(code));
  entries.push('▁', 'é', '中', '的', '。', '🙂', '▁▁', '▁▁▁▁');
  const merges = ['▁ ▁', '▁▁ ▁▁'];
  for (const merge of demo.model.merges) {
    if (!/^[\x20-\x7eĠ]+$/.test(merge) || entries.length === CHARACTERS) continue;
    const sides = merge.replaceAll('Ġ', '▁').split(' ');
    if (!sides.every((side) => entries.includes(side))) continue;
    merges.push(sides.join(' '));
    entries.push(sides.join(''));
  }
  while (entries.length < CHARACTERS) entries.push(`<unused${entries.length}>`);
  const vocab = Object.fromEntries(entries.map((entry, id) => [entry, id]));
  return {bytes: bytesModel, characters: {...options, byte_fallback: true, vocab, merges}};
}

module.exports = {families, models};
