"""The style sheet of the report: light and dark, wide and narrow, no outside file."""

from dasp.report.svg import PALETTE


def style_sheet() -> str:
    """Return the CSS of a report."""
    return figure_style() + _RULES


def figure_style() -> str:
    """Return the CSS that drawings need, on the page or alone."""
    light = "".join(f"--s{place}:{pair[0]};" for place, pair in enumerate(PALETTE))
    dark = "".join(f"--s{place}:{pair[1]};" for place, pair in enumerate(PALETTE))
    series = "".join(f".c{place}{{color:var(--s{place})}}" for place in range(len(PALETTE)))
    return (
        f":root{{{light}--page:#fff;--ink:#1b1f24}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}--page:#14171b;--ink:#e6e9ee}}}}\n"
        f"{_FIGURES}{series}\n"
    )


def standalone(drawing: str) -> str:
    """Return a drawing as a file of its own: it follows light and dark, on a page of its own."""
    head, end, body = drawing.partition(">")
    opened = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + end
    page = '<rect width="100%" height="100%" fill="var(--page)"/>'
    return f"{opened}\n<style>\n{figure_style()}</style>\n{page}{body}"


_FIGURES = """\
svg{color:var(--ink);font:12px system-ui,sans-serif}
svg text{fill:currentColor}
svg .line{stroke:currentColor;fill:none}
svg .dot{stroke:currentColor;fill:currentColor;stroke-width:1.4}
svg .ring{stroke:currentColor;fill:none;stroke-width:1.4}
svg .grid{stroke:currentColor;opacity:.16}
svg .axis{stroke:currentColor;opacity:.6}
"""

_RULES = """\
:root{color-scheme:light dark;--soft:#5b6470;--line:#d5dae1;
--tint:#f4f6f8;--good:#0a6b3d;--bad:#b3261e;--link:#1f4fa3}
@media (prefers-color-scheme:dark){:root{--soft:#a3abb8;
--line:#363c45;--tint:#1d2127;--good:#5fd39a;--bad:#ff8a80;--link:#7ea6ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:68rem;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:.4rem 0}
h2{font-size:1.3rem;margin:2.4rem 0 .6rem;border-bottom:1px solid var(--line);
padding-bottom:.3rem}
h3{font-size:1.05rem;margin:1.6rem 0 .4rem}
a{color:var(--link)}
p,li,figcaption{max-width:60rem}
figcaption,.soft{color:var(--soft);font-size:.88rem}
code{font:.86em ui-monospace,monospace;background:var(--tint);padding:.1em .3em;
border-radius:3px;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:.8rem 0}
table{border-collapse:separate;border-spacing:0;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.28rem .6rem;text-align:right;border-bottom:1px solid var(--line);
white-space:nowrap;vertical-align:top}
th[scope=row],th.text,td.text{text-align:left}
th[scope=row]{position:sticky;left:0;background:var(--page);font-weight:600}
td.wrap{white-space:normal;min-width:16rem}
.many td,.many th[scope=col]{white-space:normal;padding-inline:.35rem}
thead th{border-bottom:2px solid var(--line);color:var(--soft);font-weight:600}
tbody tr:hover td,tbody tr:hover th{background:var(--tint)}
small{color:var(--soft)}
th.published,td.published{font-style:italic;background:var(--tint);color:var(--soft)}
td.best{color:var(--good)}
td.worse small,td.worse:not(:has(small)){color:var(--bad)}
figure{margin:1.2rem 0}
figure .scroll svg{display:block;width:100%;min-width:44rem;height:auto}
details{border-top:1px solid var(--line);padding:.4rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}
.warn{border-left:4px solid var(--bad);background:var(--tint);padding:.4rem .9rem;margin:1rem 0}
@media (max-width:40rem){body{padding:.8rem}h1{font-size:1.35rem}}
.found{font-weight:600}
.contents li{margin:.35rem 0;white-space:pre-line}
section{content-visibility:auto;contain-intrinsic-size:auto 60rem}
#run nav{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}
#run h2:focus{outline:none}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.92rem}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
@media print{nav,#run nav,section>.soft{display:none}details,figure svg,tr{break-inside:avoid}
.scroll{overflow:visible}figure .scroll svg{min-width:0}table{font-size:.7rem}
th,td{white-space:normal;padding:.2rem .3rem}th[scope=row]{position:static}}
"""
