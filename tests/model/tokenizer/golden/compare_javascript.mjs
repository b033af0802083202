// SPDX-License-Identifier: Apache-2.0
// Compares the library that golden.json is made with (make_golden.js), which golden_test.cc holds
// ours against, with one that shares no code with it: @huggingface/tokenizers, in JavaScript. Ids
// of the splits and normalizers of released models; without added tokens, whose lstrip, rstrip and
// single_word it treats in its own way.
//
//     npm install --prefix DIR tokenizers@0.23.2 @huggingface/tokenizers@0.2.0
//     node compare_javascript.mjs --modules DIR/node_modules --texts 60000 --seed 11
//
// Exit code: 1 if any text differs. Of these 60000 (2.3 MB) one does, with gpt2's split, which olmoe
// has, too; ours gives what `tokenizers` gives: AFD_TOKENIZER_GOLDEN with the same texts (--texts
// and --seed of make_golden.js).
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const require = createRequire(import.meta.url);
const {families, models} = require('./families.js');
const {makeTexts} = require('./samples.js');

const RELEASED = ['deepseek_v3', 'deepseek_v2', 'qwen', 'glm', 'llama3', 'gpt2', 'olmoe', 'gpt4o',
                  'kimi', 'mixtral', 'mixtral_metaspace'];

function option(name, fallback) {
  const at = process.argv.indexOf(name);
  return at < 0 ? fallback : process.argv[at + 1];
}

const modules = path.resolve(option('--modules', 'node_modules'));
const golden = createRequire(path.join(modules, 'x.js'))('tokenizers').Tokenizer;
const plain = await import(pathToFileURL(
    path.join(modules, '@huggingface/tokenizers/dist/tokenizers.mjs')));
const demo = require('../../../../demo_model/tokenizer.json');
const texts = makeTexts(Number(option('--texts', 2000)), Number(option('--seed', 7)));
const size = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);

let numDifferent = 0;
for (const name of RELEASED) {
  const family = families[name];
  const json = {version: '1.0', truncation: null, padding: null, added_tokens: [],
                normalizer: family.normalizer, pre_tokenizer: family.pre_tokenizer,
                post_processor: null, decoder: family.decoder,
                model: {...models(demo)[family.model], ...family.model_options}};
  const first = golden.fromString(JSON.stringify(json));
  const second = new plain.Tokenizer(json, {});
  const different = [];
  for (const text of texts) {
    const ids = (await first.encode(text, null, {addSpecialTokens: false})).getIds();
    const others = second.encode(text, {add_special_tokens: false}).ids;
    if (ids.join() !== Array.from(others, Number).join()) different.push(text);
  }
  numDifferent += different.length;
  console.log(`${name}: ${different.length} of ${texts.length} texts (${size} bytes) differ`,
              different.length ? JSON.stringify(different[0]) : '');
}
process.exit(numDifferent === 0 ? 0 : 1);
