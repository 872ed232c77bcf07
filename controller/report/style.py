"""Colours by role, in light and dark, and the page's style."""

ROLES = {
    # role: (stand-in that figures are drawn with, light, dark)
    "ink": ("#010100", "#1c2128", "#e6e9ed"),
    "muted": ("#010200", "#5a6572", "#9ba6b2"),
    "grid": ("#010300", "#dde2e8", "#2d343c"),
    "line": ("#010400", "#0a5cc2", "#6fb1ff"),
    "ghost": ("#010500", "#8a94a0", "#7d8894"),
    "bad": ("#010600", "#c22f0f", "#ff8a6b"),
    "good": ("#010700", "#177a3b", "#5fd08a"),
    "revision": ("#010800", "#7b3fbf", "#c5a0ff"),
    "surface": ("#010900", "#ffffff", "#14181d"),
    # Hues of what has no meaning of its own: sources, sides, phases.
    "s1": ("#010a00", "#3b76c4", "#7ab0f5"),
    "s2": ("#010b00", "#d98014", "#f0b060"),
    "s3": ("#010c00", "#2a9d8f", "#5cc8ba"),
    "s4": ("#010d00", "#a35bb5", "#d29be0"),
    "s5": ("#010e00", "#c4566a", "#ee94a4"),
    "s6": ("#010f00", "#8c7a3d", "#cdbb78"),
}
HUES = ("s1", "s2", "s3", "s4", "s5", "s6")
"""Figures are drawn in stand-ins that the page replaces by variables of its style."""


def stand_in(role: str) -> str:
    """Return the colour that a figure is drawn with for `role`."""
    return ROLES[role][0]


def _variables(index: int) -> str:
    return " ".join(f"--{role}: {colours[index]};" for role, colours in ROLES.items())


CSS = (
    f"""
:root {{ color-scheme: light dark; {_variables(1)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(2)} }} }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 58rem; background: var(--surface);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--grid); }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .4rem 0; } .lead { font-size: 1.12rem; } .muted { color: var(--muted); }
a { color: var(--line); text-decoration-thickness: 1px; text-underline-offset: 2px; }
td a { white-space: nowrap; } .pairs a { white-space: normal; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: .6rem 0; } .figure { margin: .6rem 0; }
.figure > svg { display: block; width: 100%; height: auto; }
.figure > svg text { font-family: inherit !important; } .phone { display: none; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 500; white-space: nowrap; }
.pairs th { width: 9rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.w { min-width: 16rem; } td.note { color: var(--muted); padding-bottom: .7rem; }
tr:has(+ tr > td.note) > td { border-bottom: 0; padding-bottom: 0; }
td { overflow-wrap: break-word; }
td.b { width: 40%; min-width: 6rem; vertical-align: middle; }
code { font-size: .92em; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.bar { height: .7rem; background: var(--line); min-width: 1px; }
summary { cursor: pointer; color: var(--muted); } details { margin: .6rem 0; }
:target { background: color-mix(in srgb, var(--line) 14%, transparent); }
@media screen and (max-width: 600px) {
  .desk { display: none; } .phone { display: block; }
  table, tbody, tr, th, td { display: block; width: auto; } thead { display: none; }
  .pairs th { width: auto; }
  tr { border-bottom: 1px solid var(--grid); padding: .45rem 0; }
  th, td, td.n, td.w, td.b { border: 0; padding: .05rem 0; text-align: left; min-width: 0;
    width: auto; white-space: normal; overflow-wrap: anywhere; }
  td[data-head] { padding-left: 7.5rem; position: relative; min-height: 1.5em; }
  td[data-head]:first-child:not(.note) { font-weight: 600; }
  tr:has(+ tr > td.note) { border-bottom: 0; padding-bottom: 0; }
  tr:has(> td.note) { padding-top: 0; }
  td[data-head]::before { content: attr(data-head); position: absolute; left: 0; width: 7rem;
    color: var(--muted); font-weight: 400; }
  td.b { padding-top: .3rem; } td:empty { display: none; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; } h2, h3 { break-after: avoid; }
  .wide { overflow: visible; } .figure, tr { break-inside: avoid; } p { orphans: 3; widows: 3; }
  .figure > svg { max-width: 17cm; } a { color: inherit; text-decoration: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
  .bar { print-color-adjust: exact; } td.w { min-width: 0; } table { font-size: 8pt; }
  td.n { white-space: normal; }
  th, td { padding-right: .4rem; } @page { margin: 1.5cm; }
}
"""
)
