// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/page.h"

#include <string_view>

namespace afd::daemon {

namespace {

// An empty icon, so that a browser asks for none.
constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>afd</title>
<link rel="icon" href="data:,">
<style>
  :root { color-scheme: light dark; --line: #2b6cb0; --busy: #2b6cb0; --bubble: #dd8833;
          --faint: #8883; --heat: 204, 68, 34 }
  body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5em auto; max-width: 64em;
         padding: 0 1em }
  h1 { margin: 0 0 .6em } h1 small { font-size: 50%; font-weight: normal; opacity: .7 }
  h2 { font-size: 1.1em; margin: 1.6em 0 .5em } h2 small { font-weight: normal }
  textarea, #answer { box-sizing: border-box; width: 100%; font: inherit; padding: .6em;
                      border: 1px solid #8888; border-radius: 4px }
  #answer { white-space: pre-wrap; overflow-wrap: anywhere; min-height: 6em; margin: .5em 0 }
  #answer .prompt { opacity: .6 }
  .error { color: #d33 }
  .fields { display: flex; flex-wrap: wrap; gap: .5em 1.2em; align-items: center; margin: .6em 0 }
  .fields input { width: 6em; font: inherit } .fields button { font: inherit; padding: .1em 1em }
  #speed { min-height: 1.45em; margin: 0; opacity: .8; font-variant-numeric: tabular-nums }
  #charts { display: grid; gap: 1em;
            grid-template-columns: repeat(auto-fill, minmax(17em, 1fr)) }
  figure { margin: 0 } figcaption { display: flex; justify-content: space-between; gap: .5em }
  b, td { font-variant-numeric: tabular-nums }
  svg { display: block; width: 100%; height: 4em; background: var(--faint); border-radius: 3px }
  polyline { fill: none; stroke: var(--line); stroke-width: 1.5;
             vector-effect: non-scaling-stroke }
  .busy { fill: var(--busy) } .bubble { fill: var(--bubble) }
  .bar { display: flex; height: .5em; margin-top: 2px; border-radius: 2px; overflow: hidden;
         background: var(--faint) }
  .bar .busy { background: var(--busy) } .bar .bubble { background: var(--bubble) }
  .key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
         margin: 0 .3em 0 .8em; background: var(--faint) }
  .key.busy { background: var(--busy) } .key.bubble { background: var(--bubble) }
  table { border-collapse: collapse; width: 100% }
  td, th { padding: .2em .6em; text-align: right; white-space: nowrap }
  td:first-child, th:first-child { text-align: left; padding-left: 0 }
  td.chart { width: 40% } td.chart svg { height: 1.6em }
  #waits { color: #d33 }
  #experts { display: flex; gap: 1px }
  #experts div { flex: 1; height: 2em; min-width: 1px; background: var(--faint) }
</style>
<h1>afd <small id="model"></small> <small id="state"></small></h1>
<form id="form">
  <textarea id="prompt" rows="3" required aria-label="prompt">Once upon a time</textarea>
  <div class="fields">
    <label>tokens <input id="max_tokens" type="number" min="1" value="128"></label>
    <label>temperature
      <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
    <label>seed <input id="seed" type="number" placeholder="any"></label>
    <label>API key <input id="key" type="password" autocomplete="off"></label>
    <button id="send">Send</button> <button id="stop" type="button" disabled>Stop</button>
  </div>
</form>
<div id="answer" aria-live="polite"></div>
<p id="speed"></p>
<h2>Requests, over the last minute</h2>
<div id="charts"></div>
<h2>Workers <small><span class="key busy"></span>busy<span class="key bubble"></span>bubble: the
  other side has the work<span class="key"></span>wait: there is none; over the last minute, and
  as bars in the last second</small></h2>
<table><thead><tr><th>worker<th><th>busy<th>bubble<th>wait<th>waits/s<th>rounds/s<th>in flight
  <th>KV tokens<th>restarts</thead><tbody id="workers"></tbody></table>
<div id="waits"></div>
<h2>Experts <small id="experts_text"></small></h2>
<div id="experts"></div>
<script>
)html";

constexpr std::string_view kTail = "</script>\n</html>\n";

}  // namespace

HttpResponse answer_page() {
    HttpResponse response;
    response.content_type = "text/html; charset=utf-8";
    response.headers.emplace_back(
        "Content-Security-Policy",
        "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'");
    response.headers.emplace_back("X-Content-Type-Options", "nosniff");
    response.body = kHead;
    response.body += kPageScript;
    response.body += kTail;
    return response;
}

}  // namespace afd::daemon
