"""The look of the report: readable on a phone and on a wide screen, by day and by night."""

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1c2024; --quiet: #5b6470; --line: #d5dae0;
  --card: #f6f7f9; --bar: #3b6fb6; --good: #2c7a4b; --reject: #b3261e; --check: #8a5a00;
  --warning: #8a5a00; --advice: #2a5a94; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --ink: #e6e9ec; --quiet: #9aa4af;
  --line: #333a42; --card: #1d2126; --bar: #5b8dd6; --good: #6cc28e; --reject: #ff8a80;
  --check: #f0c060; --warning: #f0c060; --advice: #8ab8f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; }
p { margin: .35rem 0; }
small, .quiet { color: var(--quiet); }
code, .code { font-family: ui-monospace, monospace; font-size: .92em; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .5rem 0 1rem; }
a { color: var(--advice); }
.sum { font-size: 1.25rem; margin: .75rem 0 .4rem; }
.sum b { font-size: 1.6rem; }
.parts { display: flex; height: .8rem; border-radius: .4rem; overflow: hidden;
  background: var(--line); }
.parts i { min-width: 3px; }
.cells { display: grid; gap: .5rem; margin-top: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }
.cells div { background: var(--card); border-radius: .5rem; padding: .4rem .6rem;
  font-size: .85rem; color: var(--quiet); }
.cells b { display: block; font-size: 1.3rem; color: var(--ink); }
.reject { color: var(--reject); } .check { color: var(--check); }
.warning { color: var(--warning); } .advice { color: var(--advice); } .good { color: var(--good); }
.fill-good { background: var(--good); } .fill-reject { background: var(--reject); }
details { border-top: 1px solid var(--line); padding: .5rem 0; }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; }
summary .count { float: right; font-weight: 600; padding-left: 1rem; }
.where { margin: .5rem 0 .5rem 1rem; font-size: .92rem; }
.grid { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
figure { margin: 0; padding: .5rem; background: var(--card); border-radius: .5rem;
  font-size: .85rem; line-height: 1.4; }
figure.best { outline: 2px solid var(--good); }
figure img, figure .none { display: block; margin: 0 auto .4rem; max-width: 100%; height: 10rem;
  object-fit: contain; }
figure .none { display: grid; place-items: center; color: var(--quiet); }
.group { margin: .75rem 0 1.25rem; }
.pair { display: grid; gap: .5rem; grid-template-columns: 1fr 1fr; background: var(--card);
  border-radius: .5rem; padding: .5rem; font-size: .85rem; }
.pair figure { padding: 0; background: none; }
.pair p { grid-column: 1 / -1; margin: 0; }
.pairs { display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
.charts { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); }
.chart { display: grid; gap: .25rem .6rem; align-items: center; font-size: .85rem;
  grid-template-columns: max-content 1fr max-content; }
.chart i { display: block; height: .9rem; border-radius: .2rem; background: var(--bar); }
.chart span { text-align: right; color: var(--quiet); }
"""
