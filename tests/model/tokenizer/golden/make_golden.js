// SPDX-License-Identifier: Apache-2.0
// Writes golden.json: what the tokenizers library makes of texts and ids, for golden_test.cc.
//
//     npm install --prefix DIR tokenizers@0.23.2
//     NODE_PATH=DIR/node_modules node make_golden.js --out golden.json
//
// --texts N, --lists N (of ids) and --seed S make other ones, of any number; --ids keeps ids and
// texts, not their hashes, which shows where two programs differ. compare_library does it all.
'use strict';
const fs = require('fs');
const path = require('path');
const {families, models} = require('./families.js');
const {makeTexts, makeIds, hashOf} = require('./samples.js');
const {Tokenizer} = require('tokenizers');

function option(name, fallback) {
  const at = process.argv.indexOf(name);
  return at < 0 ? fallback : process.argv[at + 1];
}

function tokenizerJson(family, model) {
  return {version: '1.0', truncation: null, padding: null, added_tokens: family.added_tokens,
          normalizer: family.normalizer, pre_tokenizer: family.pre_tokenizer,
          post_processor: family.post_processor || null, decoder: family.decoder,
          model: {...model, ...family.model_options}};
}

async function goldenOf(family, model, texts, idLists, isFull) {
  const tokenizer = Tokenizer.fromString(JSON.stringify(tokenizerJson(family, model)));
  const out = {pieces: [], encoded: [], decoded: []};
  const preTokenizer = tokenizer.getPreTokenizer();
  for (const text of family.pre_tokenizer ? texts : []) {
    // Merges hide most of what a split does.
    const pieces = text ? preTokenizer.preTokenizeString(text).map(([piece]) => piece) : [];
    const joined = [...Buffer.from(pieces.join('\n'), 'utf8')];
    out.pieces.push(isFull ? pieces : hashOf(joined));
  }
  for (const text of texts) {
    const ids = (await tokenizer.encode(text, null, {addSpecialTokens: true})).getIds();
    out.encoded.push(isFull ? ids : hashOf(ids));
  }
  for (const ids of idLists) {
    const text = await tokenizer.decode(ids, true);
    out.decoded.push(isFull ? text : hashOf([...Buffer.from(text, 'utf8')]));
  }
  return out;
}

async function main() {
  const count = Number(option('--texts', 220));
  const numLists = Number(option('--lists', Math.ceil(count / 4)));
  const seed = Number(option('--seed', 1));
  const isFull = process.argv.includes('--ids');
  const demo = JSON.parse(fs.readFileSync(
      path.join(__dirname, '../../../../demo_model/tokenizer.json'), 'utf8'));
  const golden = {models: models(demo), texts: makeTexts(count, seed), id_lists: {}, families: {}};
  for (const [name, model] of Object.entries(golden.models)) {
    golden.id_lists[name] = makeIds(numLists, Object.keys(model.vocab).length + 8, seed);
  }
  const only = option('--family', '');
  for (const [name, family] of Object.entries(families)) {
    if (only && only !== name) continue;
    const model = golden.models[family.model];
    golden.families[name] = {
      ...family, ...(await goldenOf(family, model, golden.texts, golden.id_lists[family.model],
                                    isFull))};
  }
  // One text, list or family a line: changes can be read.
  const lines = (object) => Object.entries(object).map(
      ([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`).join(',\n');
  const texts = golden.texts.map((text) => JSON.stringify(text)).join(',\n');
  // The demo model's own vocabulary is beside it.
  delete golden.models.bytes;
  fs.writeFileSync(option('--out', 'golden.json'),
                   `{"models": {\n${lines(golden.models)}},\n"texts": [\n${texts}],\n` +
                   `"id_lists": {\n${lines(golden.id_lists)}},\n` +
                   `"families": {\n${lines(golden.families)}}}\n`);
}

main();
