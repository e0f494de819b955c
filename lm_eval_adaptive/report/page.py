"""Building blocks of self-contained HTML pages: text, tables, plot frames, and the whole page.

This module owns escaping, layout and colours; it imports the standard library and numpy, and knows
nothing of rankings or banks.

Pictures are hand-made: HTML bars and inline SVG, drawn here. ``plotly.js`` alone is 4.8 MB as the
Python package ships it (7.1), which leaves nothing of a page of 5 MB; packed (gzip in base64, 2 MB)
it needs a browser with ``DecompressionStream``, a script that is made at run time, and shows
nothing without. Hand-made pictures are some hundred kilobytes, show without any script, print, and
let the page forbid all scripts but its own small one: answers of models are untrusted text, so
everything is escaped, and on top of that a content security policy names the hashes of the one
script that may run and the one sheet of style, and allows no connection at all. That script only
turns tooltips into ones that appear at once and on touch.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.records.files import write_aside

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def _named() -> dict[int, str]:
    """Characters that are not seen and change what is: their numbers take their place."""
    controls = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n"), ord("\r")}
    turning = {0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
    return {each: f"[U+{each:04X}]" for each in controls | turning | {0xFEFF}}


_NAMED = _named()


def esc(value: object) -> str:
    r"""Text as HTML shows it, for content and for quoted attributes.

    Marks of direction, byte order marks and control characters are named, so that no text can turn
    round what stands beside it or hide a part of itself.

    >>> esc("<b>"), esc("safe\u202egnp.exe")
    ('&lt;b&gt;', 'safe[U+202E]gnp.exe')
    """
    return html.escape(str(value).translate(_NAMED), quote=True)


def num(value: float | None, digits: int = 4) -> str:
    """A number to so many digits, a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def cut(text: str, length: int, *, keep_end: bool = False) -> str:
    """At most ``length`` characters, saying how many are left out."""
    if len(text) <= length:
        return text
    left = f"[… {len(text) - length} characters left out …]"
    return f"{left}\n{text[-length:]}" if keep_end else f"{text[:length]}\n{left}"


class Axis:
    """A linear axis with round ticks.

    Args:
        lo: Low end, data units.
        hi: High end.
        count: About how many ticks.
    """

    def __init__(self, lo: float, hi: float, count: int = 5) -> None:
        if hi - lo < 1e-12 * max(1.0, abs(lo)):
            lo, hi = lo - 0.5, hi + 0.5
        self.lo, self.hi = lo, hi
        rough = (hi - lo) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each for each in (1, 2, 2.5, 5, 10) if each * power >= rough * 0.999) * power
        first, last = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9)
        self.ticks = [round(each * step, 12) for each in range(first, last + 1)]

    def at(self, value: float) -> float:
        """Place of a value in percent of the axis, clipped to it."""
        share = (value - self.lo) / (self.hi - self.lo)
        return round(100.0 * min(max(share, 0.0), 1.0), 2)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table; cells that are numbers or end in a percent sign stand right."""

    def cell(value: object) -> str:
        text = str(value)
        number = len(text) < 24 and text[:1] in tuple("0123456789+-−–")
        return f"<td{' class=n' if number else ''}>{esc(text)}</td>"

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    top = "".join(f'<th scope="col">{esc(name)}</th>' for name in head)
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def fold_away(summary: str, inside: str) -> str:
    """Content behind a line to click; ``inside`` is HTML."""
    return f"<details><summary>{esc(summary)}</summary>{inside}</details>"


def section(prefix: str, name: str, title: str, words: str, inside: str) -> str:
    """A section with its title and explanation; ``inside`` is HTML."""
    return (
        f'<section id="{prefix}{name}"><h2>{esc(title)}</h2>'
        f'<p class="words">{esc(words)}</p>{inside}</section>'
    )


def frame(inside: str, x: Axis, y: Axis, kind: str, label: str) -> str:
    """A plot area with grid and tick labels; labels are HTML, so they keep their size anywhere."""
    grid = "".join(
        f'<line x1="{x.at(t)}%" x2="{x.at(t)}%" y1="0" y2="100%" class="g"/>' for t in x.ticks
    )
    grid += "".join(
        f'<line y1="{100 - y.at(t):g}%" y2="{100 - y.at(t):g}%" x1="0" x2="100%" class="g"/>'
        for t in y.ticks
    )
    labels = "".join(f'<span class="x" style="left:{x.at(t)}%">{t:g}</span>' for t in x.ticks)
    labels += "".join(
        f'<span class="y" style="top:{100 - y.at(t):g}%">{t:g}</span>' for t in y.ticks
    )
    return (
        f'<div class="frame {kind}"><svg role="img" aria-label="{esc(label)}" width="100%" '
        f'height="100%">{grid}{inside}</svg><div aria-hidden="true">{labels}</div></div>'
    )


STRETCHED = '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">'


def limits(values: Any, inside: Sequence[float]) -> tuple[float, float]:
    """Range of an axis: all but the outermost of many values, and some that must be seen."""
    low, high = (float(each) for each in np.percentile(values, [0.5, 99.5]))
    low, high = min([low, *inside]), max([high, *inside])
    pad = 0.04 * (high - low)
    return low - pad, high + pad


def as_text(value: object) -> str:
    """Any value of a JSON file as text to read."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def pre(text: str) -> str:
    """Text as it was written, isolated from the page's own direction."""
    return f'<pre dir="auto">{esc(text)}</pre>'


def para(text: str) -> str:
    """A paragraph."""
    return f"<p>{esc(text)}</p>"


def _hash(text: str) -> str:
    """A script or style as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def whole_page(title: str, body: str) -> str:
    """A page around its content, with the style, the script and the policy."""
    # Attributes hold places in plots; a sheet of style has to be the page's own. Browsers that do
    # not tell these two apart take the rule before.
    policy = (
        f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src 'unsafe-inline'; "
        f"style-src-elem {_hash(STYLE)}; style-src-attr 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{esc(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def write_text(path: Path, text: str) -> Path:
    """Write a page or table; no half-written file is ever seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Answers may hold lone surrogates, which UTF-8 cannot.
    write_aside(path, text.encode("utf-8", "replace"))
    return path


STYLE = """
:root{--bg:#fff;--fg:#1c2128;--soft:#5b6470;--line:#d8dde3;--card:#f5f7f9;--hue:31 90 196;
--bad:176 58 20;--warn:#fff4d6;--warnline:#d9a400}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e8ec;--soft:#9aa5b1;--line:#343b44;
--card:#1d2228;--hue:122 168 255;--bad:255 140 92;--warn:#3a3013;--warnline:#b98f1a}}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--card:#fff;--hue:31 90 196;
--bad:176 58 20;--warn:#fff;--warnline:#888}body{font-size:10pt}section,figure,li,article
{break-inside:avoid}#tip{display:none}nav{display:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:66rem;margin:0 auto;padding:1rem}
h1,h2,h3,h4,h5,p,dd,summary,.name,figcaption,li{overflow-wrap:anywhere}
td,th{overflow-wrap:break-word;max-width:24rem}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0 0}
h2{font-size:1.25rem;margin:2.5rem 0 .25rem}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
h4,h5{font-size:.9rem;margin:1rem 0 .25rem}
header+section h2{margin-top:1.5rem}
header~header{border-top:3px solid var(--line);margin-top:3rem;padding-top:1rem}
nav a{margin-right:1rem}a{color:rgb(var(--hue))}
.s{color:var(--soft);font-size:.85rem}
.words{color:var(--soft);margin:0 0 .75rem;max-width:46rem}
.headline{font-size:1.1rem;max-width:52rem}
.banner,.warn{background:var(--warn);border-left:4px solid var(--warnline);margin:.75rem 0}
.banner{padding:.5rem .75rem}.warn{padding:.5rem .75rem .5rem 2rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem}
.facts dt{color:var(--soft);font-size:.85rem}.facts dd{margin:0;font-size:1.25rem}
.facts dd.s{font-size:.85rem}
.forest{list-style:none;padding:0;margin:0}
.forest li{display:grid;grid-template-columns:minmax(8rem,16rem) minmax(0,1fr) 12rem;
gap:0 1rem;align-items:center;padding:.3rem 0;border-bottom:1px solid var(--line)}
.forest .name .s{display:block}
.forest .bar{position:relative;height:1.5rem;display:block;margin:0 .5rem}
.forest .axis{border:0}.forest .axis .bar span{position:absolute;transform:translateX(-50%);
font-size:.8rem;color:var(--soft)}
.bar i{position:absolute;display:block}
.bar .g{top:-.3rem;bottom:-.3rem;width:1px;background:var(--line)}
.bar .ci{top:50%;height:4px;margin-top:-2px;background:rgb(var(--hue)/.55);border-radius:2px;
min-width:2px;print-color-adjust:exact}
.bar .dot{top:50%;width:12px;height:12px;margin:-6px;border-radius:50%;background:rgb(var(--hue));
print-color-adjust:exact}
.bar .fill{top:.25rem;bottom:.25rem;left:0;background:rgb(var(--hue)/.7);border-radius:2px;
print-color-adjust:exact}
.val b{font-variant-numeric:tabular-nums}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.matrix td,.matrix th{vertical-align:middle}
.matrix td,.matrix thead th{text-align:center;min-width:2.6rem;padding:.35rem .2rem;
font-variant-numeric:tabular-nums;border:1px solid var(--bg);print-color-adjust:exact}
.matrix tbody th{font-weight:400;position:sticky;left:0;background:var(--bg)}
.matrix tbody th span{display:block;max-width:16rem;min-width:6rem}
.matrix .undecided{font-style:italic;outline:2px dashed var(--soft);outline-offset:-3px}
.w0{background:rgb(var(--hue)/.04)}.w1{background:rgb(var(--hue)/.12)}
.w2{background:rgb(var(--hue)/.2)}.w3{background:rgb(var(--hue)/.28)}
.w4{background:rgb(var(--hue)/.38)}.l0{background:rgb(var(--bad)/.04)}
.l1{background:rgb(var(--bad)/.1)}.l2{background:rgb(var(--bad)/.16)}
.l3{background:rgb(var(--bad)/.22)}.l4{background:rgb(var(--bad)/.3)}
.defs{position:absolute}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));
gap:1rem 1.5rem}
figure{margin:0;min-width:0}figcaption{font-size:.9rem;font-weight:600;margin-bottom:.4rem}
figcaption .s{font-weight:400;display:block}
.frame{position:relative;margin:0 .6rem 1.6rem 2.8rem;border:1px solid var(--line)}
.frame.small{height:10rem}.frame.large{height:26rem}
.frame svg{display:block;overflow:visible}
.frame span{position:absolute;font-size:.75rem;color:var(--soft)}
.frame .x{top:100%;transform:translateX(-50%);padding-top:.1rem}
.frame .y{right:100%;transform:translateY(-50%);padding-right:.3rem}
line.g{stroke:var(--line);stroke-width:1}
path{fill:none}
.other{stroke:var(--soft);stroke-width:1;opacity:.35}
.line{stroke:rgb(var(--hue));stroke-width:2}
path,.other,.line{vector-effect:non-scaling-stroke}
.band{fill:rgb(var(--hue)/.2);print-color-adjust:exact}
.hit{fill:transparent}.hit:hover{fill:rgb(var(--hue))}
.quiet{stroke:var(--soft);stroke-width:4;stroke-linecap:round;opacity:.4}
.asked{fill:rgb(var(--hue)/.65);stroke:var(--bg);stroke-width:1;print-color-adjust:exact}
.asked:hover{fill:rgb(var(--bad))}
.mark{stroke:rgb(var(--bad));stroke-width:3}
.axes{margin:0 0 .5rem 2.8rem}
details{margin:.6rem 0}summary{cursor:pointer;color:rgb(var(--hue))}
details.doc{border:1px solid var(--line);border-radius:6px;padding:.4rem .75rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);
border-radius:4px;padding:.5rem;margin:.25rem 0;max-height:24rem;overflow-y:auto;
font:.85rem/1.45 ui-monospace,monospace;unicode-bidi:isolate}
.answers{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,18rem),1fr));
gap:.5rem 1rem}
article{min-width:0}article h5{display:flex;justify-content:space-between;gap:1rem;margin:.25rem 0}
article h5 b{white-space:nowrap}
.read dt{font-weight:600}.read dd{margin:0 0 .5rem}
#tip{position:fixed;z-index:9;max-width:min(24rem,90vw);background:var(--fg);color:var(--bg);
padding:.35rem .6rem;border-radius:4px;font-size:.85rem;white-space:pre-line;
overflow-wrap:anywhere;pointer-events:none}
@media (max-width:640px){main{padding:.75rem}h1{font-size:1.35rem}
.forest li{grid-template-columns:minmax(0,1fr) max-content}
.forest .bar{grid-row:2;grid-column:1/3}.forest .val .s{display:block}
.forest .val{text-align:right}.forest .axis .val{grid-row:3;grid-column:1/3}
.forest .axis .name{display:none}.frame.large{height:20rem}
.matrix tbody th span{max-width:7.5rem;font-size:.8rem;line-height:1.2;word-break:break-all}
.matrix td,.matrix thead th{min-width:2.1rem;font-size:.8rem}}
@media print{pre{max-height:none;overflow:visible}}
"""

# Written without < and &, so that the script's text is the same to every parser.
SCRIPT = """
(function () {
  "use strict";
  var root = document.documentElement, mark = root.dataset;
  mark.errors = "0";
  window.addEventListener("error", function () { mark.errors = String(Number(mark.errors) + 1); });
  document.addEventListener("securitypolicyviolation", function (event) {
    mark.blocked = event.violatedDirective;
  });
  document.querySelectorAll("svg title").forEach(function (title) {
    var owner = title.parentNode;
    owner.setAttribute("data-tip", title.textContent);
    title.remove();
  });
  document.querySelectorAll("[title]").forEach(function (owner) {
    owner.setAttribute("data-tip", owner.getAttribute("title"));
    owner.removeAttribute("title");
  });
  var tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.appendChild(tip);
  function show(event) {
    var owner = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !owner;
    if (!owner) { return; }
    tip.textContent = owner.getAttribute("data-tip");
    var left = Math.min(event.clientX + 12, root.clientWidth - tip.offsetWidth - 4);
    var below = event.clientY + 16;
    var over = below + tip.offsetHeight > window.innerHeight;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (over ? Math.max(4, event.clientY - tip.offsetHeight - 10) : below) + "px";
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  window.addEventListener("scroll", function () { tip.hidden = true; }, { passive: true });
  mark.ready = "1";
})();
"""
