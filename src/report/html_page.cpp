// SPDX-License-Identifier: Apache-2.0
#include "report/html_page.hpp"

#include <fmt/format.h>

#include <utility>

namespace slimgemm::report {
namespace {

constexpr const char* style = R"css(
:root { color-scheme: light dark; --paper: #fbfbf9; --card: #ffffff; --ink: #1c2126;
  --soft: #5c666f; --rule: #dfe3e6; --s0: #0f7b6c; --s1: #8d99a5; --s2: #d9a441; --s3: #c9d1d8;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --card: #1b2126; --ink: #e6eaed;
  --soft: #9aa6b0; --rule: #323b43; --s0: #3fb8a3; --s1: #6f7d8a; --s2: #d9a441; --s3: #45515c;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem; max-width: 76rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 48rem; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.score { font-size: 3rem; line-height: 1.1; font-weight: 650; color: var(--s0); margin: .5rem 0 0; }
.bad { color: var(--bad); font-weight: 600; }
.grid-of-charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 6px;
  padding: .75rem; margin: 0; max-width: 36rem; }
svg { display: block; width: 100%; margin-top: .5rem; height: auto;
  font: 11px system-ui, sans-serif; }
svg .label { fill: var(--soft); }
svg .value { fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
svg .shade { fill: var(--s0); opacity: .13; }
svg .dot { fill: var(--s2); }
.s0 { fill: var(--s0); background: var(--s0); } .s1 { fill: var(--s1); background: var(--s1); }
.s2 { fill: var(--s2); background: var(--s2); } .s3 { fill: var(--s3); background: var(--s3); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .25rem 0 .75rem;
  list-style: none; font-size: .9rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  margin-right: .4rem; vertical-align: -1px; }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); white-space: nowrap; vertical-align: top; }
)css";

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      escape_html(title), style, body);
}

// A "<" can only stand inside a JSON string, where it may be written as an escape.
std::string embedded_json(std::string_view json) {
  std::string text = "<script type=\"application/json\" id=\"result\">\n";
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text + "</script>\n";
}

HtmlTable::HtmlTable(const std::vector<std::string>& head)
    : html_(R"(<div class="scroll"><table>)") {
  html_ += "<thead><tr>";
  for (const auto& cell : head) html_ += "<th>" + escape_html(cell) + "</th>";
  html_ += "</tr></thead>\n<tbody>\n";
}

void HtmlTable::add(const std::vector<std::string>& row) {
  html_ += "<tr>";
  for (const auto& cell : row) html_ += "<td>" + cell + "</td>";
  html_ += "</tr>\n";
}

std::string HtmlTable::finish() { return std::move(html_) + "</tbody></table></div>\n"; }

}  // namespace slimgemm::report
