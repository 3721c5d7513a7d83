// The rollouts of a run: millions of rows, read page by page.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call, isExport, type Schemas } from "../api";
import { duration, fixed, number, oneLine, signed } from "../format";
import { Choice, Empty, Ending, Loading, Mark, PLAYED_AFTER, Problem, useKeys, useNarrow } from "../parts/ui";
import { currentPlace, go, link, setParams, usePlace } from "../router";

type Line = Schemas["RolloutLine"];
type Page = Schemas["RolloutPage"];
const PAGE = 100;
const WINDOW = 100_000; // rows in one scrolling list: browsers limit how tall an element may be
// Every ending of the schema: leaving one out is a type error.
const ENDINGS = Object.keys({ answered: 1, unparsable_call: 1, unknown_tool: 1, tool_deadline: 1, turn_limit: 1, token_budget: 1, invalid_output: 1, input_guardrail: 1, output_guardrail: 1, tool_guardrail: 1, rollout_deadline: 1, infrastructure_error: 1, no_model_call: 1 } satisfies Record<Schemas["Ending"], 1>);
const TEXTS = ["text", "question", "case", "measure", "tool"] as const;
const NUMBERS = ["first_step", "last_step", "min_reward", "max_reward", "min_advantage", "max_advantage"] as const;

function filtersOf(params: URLSearchParams): Record<string, string | number> {
  const found: Record<string, string | number> = {};
  for (const name of [...TEXTS, "ending", "verdict"]) {
    const value = params.get(name);
    if (value) found[name] = value;
  }
  for (const name of NUMBERS) {
    const value = params.get(name);
    if (value && Number.isFinite(Number(value))) found[name] = Number(value);
  }
  return found;
}

export function RolloutsTab({ run, log, isLive }: { run: string; log: string; isLive: boolean }) {
  const place = usePlace();
  const filters = useMemo(() => filtersOf(place.params), [place.params.toString()]); // eslint-disable-line react-hooks/exhaustive-deps
  const isFiltered = Object.keys(filters).length > 0;
  const base = Number(place.params.get("at") ?? 0) || 0;
  const list = useRollouts(run, log, filters, isFiltered, base, isLive);
  const [selected, select] = useState(0);
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow();
  const rows = useVirtualizer({ count: list.count, getScrollElement: () => scroller.current, estimateSize: () => (isNarrow ? 56 : 34), overscan: 15 });
  const items = rows.getVirtualItems();
  const shown = list.line(items[0]?.index ?? 0) ?? list.line(0);
  const side = shown && hasSide(shown);
  const [top, bottom] = [items[0]?.index ?? 0, items[items.length - 1]?.index ?? 0];
  useEffect(() => list.want(top, bottom), [top, bottom, list]);
  useEffect(() => {
    select(0);
    scroller.current?.scrollTo(0, 0);
  }, [filters, base]);
  const move = (by: number) => {
    const next = Math.max(0, Math.min(list.count - 1, selected + by));
    select(next);
    rows.scrollToIndex(next);
  };
  const open = (line: Line | undefined) => line && go(link(["run", run, "rollout", line.id], { log: log === "rollouts" ? "" : log }));
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: (event) => (event.preventDefault(), move(1)),
    ArrowUp: (event) => (event.preventDefault(), move(-1)),
    PageDown: (event) => (event.preventDefault(), move(20)),
    PageUp: (event) => (event.preventDefault(), move(-20)),
    Enter: () => open(list.line(selected)),
    "/": (event) => (event.preventDefault(), document.getElementById("search")?.focus()),
  });
  return (
    <>
      {isExport() ? null : <Filters />}
      {list.error ? <Problem error={list.error} /> : null}
      {list.isLoading ? <Loading /> : null}
      <p className="faint row" style={{ margin: "0 2px 6px", minHeight: 22 }} aria-live="polite">
        <span className="num">{list.message}</span>
        {list.total > WINDOW && !isFiltered ? <Windows base={base} total={list.total} /> : null}
        {isFiltered && list.hasMore ? <button className="button quiet" onClick={list.loadMore}>Search further</button> : null}
      </p>
      {!list.count && !list.isLoading && !list.error ? (
        <Empty title={isFiltered ? "No rollout matches." : isLive ? "No rollouts yet." : "This run has no rollouts here."}>{isFiltered ? "Loosen a filter to see more." : isLive ? "They appear here as they are played." : ""}</Empty>
      ) : (
        <div className="grid-table rollouts-grid" role="table" aria-label="Rollouts" aria-rowcount={list.count}>
          <div className="grid-head" role="row">
            {["", "After step", "Case", "Reward", side ? "Model" : "Advantage", "Ending", "Tools", "Tokens", "Time", "Answer, or why it failed"].map((name, at) => (
              <span key={at} role="columnheader" className={[3, 6, 7, 8].includes(at) ? "right" : ""} title={at === 1 ? PLAYED_AFTER : undefined}>{name || <span className="hidden-label">Passed</span>}</span>
            ))}
          </div>
          <div className="scroll" ref={scroller} style={{ maxHeight: "calc(100vh - 320px)", minHeight: 240 }} tabIndex={0} role="rowgroup" aria-label="List of rollouts">
            <div role="presentation" style={{ height: rows.getTotalSize(), position: "relative" }}>
              {items.map((item) => (
                <Row key={item.index} line={list.line(item.index)} start={item.start} isSelected={item.index === selected} onOpen={open} href={(line) => link(["run", run, "rollout", line.id], { log: log === "rollouts" ? "" : log })} measure={isNarrow ? rows.measureElement : undefined} index={item.index} />
              ))}
            </div>
          </div>
        </div>
      )}
    </>
  );
}

interface RowProps {
  line: Line | undefined;
  start: number;
  index: number;
  isSelected: boolean;
  onOpen: (line: Line) => void;
  href: (line: Line) => string;
  measure: ((node: Element | null) => void) | undefined;
}

function Row({ line, start, index, isSelected, onOpen, href, measure }: RowProps) {
  const style = { position: "absolute" as const, left: 0, right: 0, transform: `translateY(${start}px)` };
  if (!line) return <div className="grid-row" role="row" style={style}><span role="cell" /><span role="cell" className="faint">…</span></div>;
  return (
    <div className="grid-row" role="row" style={style} aria-selected={isSelected} onClick={() => onOpen(line)} data-index={index} ref={measure}>
      <span role="cell"><Mark passed={line.passed} /></span>
      <span role="cell" className="num soft narrow-hide">{line.step}</span>
      <span role="cell" className="cut"><a href={href(line)} onClick={(event) => event.stopPropagation()}><bdi>{oneLine(line.question || line.case)}</bdi></a></span>
      <span role="cell" className="num right">{fixed(line.reward)}</span>
      <span role="cell" className="cut narrow-hide">{hasSide(line) ? sideOf(line) : <Advantage value={line.advantage} />}</span>
      <span role="cell" className="cut narrow-hide"><Ending ending={line.ending} /></span>
      <span role="cell" className="num right soft narrow-hide">{line.tool_calls}</span>
      <span role="cell" className="num right soft narrow-hide">{number(line.sampled_tokens)}</span>
      <span role="cell" className="num right soft narrow-hide">{duration(line.seconds)}</span>
      <span role="cell" className={`cut narrow-full ${line.passed ? "soft" : ""}`}><bdi>{oneLine(line.passed ? line.answer : line.reason || line.answer)}</bdi></span>
    </div>
  );
}

const hasSide = (line: Line) => !line.id.startsWith(line.case);

/** Which model of a proof, a check or a shipment played it. */
function sideOf(line: Line): string {
  return oneLine(line.id.split("/")[0] ?? "");
}

function Advantage({ value }: { value: number | null | undefined }) {
  if (value === null || value === undefined) return <span className="faint">–</span>;
  const share = Math.min(1, Math.abs(value) / 2.5) * 22;
  return (
    <span className="row num" style={{ gap: 6 }} title={`advantage ${value}`}>
      <span style={{ width: 36, textAlign: "right" }}>{signed(value)}</span>
      <svg width="46" height="10" aria-hidden="true">
        <rect x={value < 0 ? 23 - share : 23} y="1" width={Math.max(1, share)} height="8" rx="1.5" fill={value < 0 ? "var(--bad)" : "var(--good)"} opacity="0.75" />
        <rect x="22.5" y="0" width="1" height="10" fill="var(--line-strong)" />
      </svg>
    </span>
  );
}

function Windows({ base, total }: { base: number; total: number }) {
  const place = usePlace();
  const to = (start: number) => setParams(place, { at: start > 0 ? String(Math.min(start, total - 1)) : undefined });
  return (
    <span className="row">
      <button className="button" disabled={base <= 0} onClick={() => to(Math.max(0, base - WINDOW))}>Previous</button>
      <button className="button" disabled={base + WINDOW >= total} onClick={() => to(base + WINDOW)}>Next</button>
      <input className="field num" style={{ width: 130 }} placeholder="Go to row" aria-label="Go to row" inputMode="numeric"
        onKeyDown={(event) => event.key === "Enter" && to(Math.max(0, Number(event.currentTarget.value.replace(/\D/g, "")) - 1))} />
    </span>
  );
}

function Filters() {
  const place = usePlace();
  const value = (name: string) => place.params.get(name) ?? "";
  const [round, setRound] = useState(0); // new fields after Clear: what was typed in the old ones is gone
  const set = (name: string, text: string) => {
    const now = currentPlace(); // a field may answer half a second later, when others have changed
    if (text !== (now.params.get(name) ?? "")) setParams(now, { [name]: text || undefined, at: undefined });
  };
  const input = (name: string, label: string, width: number) => (
    <TextFilter key={`${name} ${round}`} id={name === "text" ? "search" : undefined} label={label} width={width} value={value(name)} isNumber={(NUMBERS as readonly string[]).includes(name)} onChange={(text) => set(name, text)} />
  );
  const isFiltered = [...TEXTS, ...NUMBERS, "ending", "verdict"].some(value);
  const isOpen = ["measure", "tool", "question", "case", ...NUMBERS].some(value);
  return (
    <div className="filters" role="search" style={{ marginBottom: 10 }}>
      {input("text", "Search messages", 190)}
      <Choice label="Verdict" value={value("verdict")} options={["passed", "failed", "unscored"]} onChange={(text) => set("verdict", text)} />
      <Choice label="Ending" value={value("ending")} options={ENDINGS} onChange={(text) => set("ending", text)} />
      <details className="fold more-filters" open={isOpen || undefined}>
        <summary>More filters</summary>
        <div className="filters">
      {input("question", "Question", 130)}
      {input("measure", "Measure", 110)}
      {input("tool", "Tool", 90)}
      {value("case") ? input("case", "Case", 150) : null}
      {input("first_step", "After step ≥", 100)}
      {input("last_step", "After step ≤", 100)}
      {input("min_reward", "Reward ≥", 88)}
      {input("max_reward", "Reward ≤", 88)}
      {input("min_advantage", "Advantage ≥", 104)}
      {input("max_advantage", "Advantage ≤", 104)}
        </div>
      </details>
      {isFiltered ? <button className="button quiet" onClick={() => (setRound(round + 1), go(link(place.parts)))}>Clear</button> : null}
    </div>
  );
}

const TYPING = 500; // milliseconds after the last key

/** A field that filters when one stops typing. */
function TextFilter({ id, label, width, value, isNumber, onChange }: { id: string | undefined; label: string; width: number; value: string; isNumber: boolean; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (document.activeElement !== field.current) setText(value);
  }, [value]);
  const isBad = isNumber && text.trim() !== "" && !Number.isFinite(Number(text));
  useEffect(() => {
    if (text === value || isBad) return;
    const timer = window.setTimeout(() => onChange(text.trim()), TYPING);
    return () => window.clearTimeout(timer);
  }, [text]); // eslint-disable-line react-hooks/exhaustive-deps
  return (
    <input ref={field} id={id} className="field" style={{ width }} aria-label={label} placeholder={label} value={text} aria-invalid={isBad} title={isBad ? "Not a number" : undefined}
      onChange={(event) => setText(event.target.value)}
      onKeyDown={(event) => {
        if (event.key === "Enter" && !isBad) onChange(text.trim());
        if (event.key === "Escape") event.currentTarget.blur();
      }} />
  );
}

interface Rollouts {
  count: number;
  total: number;
  line: (index: number) => Line | undefined;
  want: (top: number, bottom: number) => void;
  loadMore: () => void;
  hasMore: boolean;
  isLoading: boolean;
  message: string;
  error: Error | undefined;
}

interface Found {
  key: string; // run, log and filters: what was found for others does not count
  lines: Line[];
  next: number | null;
  searched: number;
}

const nothing = (key: string): Found => ({ key, lines: [], next: 0, searched: 0 });

/** Without filters, row n is position n, and chunks are read where one looks. With filters, pages
 * follow each other, and each says up to where the log was searched. */
function useRollouts(run: string, log: string, filters: Record<string, string | number>, isFiltered: boolean, base: number, isLive: boolean): Rollouts {
  const [total, setTotal] = useState(0);
  const [error, setError] = useState<Error>();
  const [state, setFound] = useState<Found>(nothing(""));
  const chunks = useRef(new Map<number, Line[] | null>());
  const [, setVersion] = useState(0);
  const pending = useRef("");
  const key = `${run}|${log}|${base}|${JSON.stringify(filters)}`;
  const found = state.key === key ? state : nothing(key);
  const current = useRef(key);
  const [isLoading, setLoading] = useState(true);
  const ask = useCallback((given: Record<string, unknown>) => call<Page>("rollout.list", { run, ...(log === "rollouts" ? {} : { log }), count: PAGE, ...given }), [run, log]);

  const readChunk = useCallback(async (number: number) => {
    if (chunks.current.has(number)) return;
    chunks.current.set(number, null);
    const own = current.current;
    try {
      const start = base + number * PAGE;
      const page = await ask(start ? { start } : {});
      if (own !== current.current) return;
      chunks.current.set(number, page.rollouts);
      setTotal(page.total);
      setVersion((now) => now + 1);
    } catch (reason) {
      if (own === current.current) setError(reason as Error);
    }
    setLoading(false);
  }, [ask, base]);

  const next = found.next;
  const loadMore = useCallback(async () => {
    const own = `${key}@${next}`;
    if (pending.current === own || next === null) return;
    pending.current = own;
    const follow = (page: Page | null) => setFound((now) => {
      const known = now.key === key ? now : nothing(key);
      if (known.next !== next) return now;
      if (!page) return { ...known, next: null };
      return { key, lines: [...known.lines, ...page.rollouts], next: page.next ?? null, searched: page.next ?? page.total };
    });
    try {
      const page = await ask({ ...filters, start: next });
      if (key !== current.current) return; // the filters have changed meanwhile
      setTotal(page.total);
      follow(page);
    } catch (reason) {
      if (key !== current.current) return;
      setError(reason as Error);
      follow(null);
    } finally {
      if (pending.current === own) pending.current = "";
    }
    setLoading(false);
  }, [ask, filters, next, key]);

  useEffect(() => {
    current.current = key;
    chunks.current.clear();
    setFound(nothing(key));
    setError(undefined);
    setLoading(true);
    if (!isFiltered) void readChunk(0);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key]);

  useEffect(() => {
    if (isFiltered && found.next !== null && found.lines.length < 2 * PAGE) void loadMore();
  }, [isFiltered, found.next, found.lines.length, loadMore]);

  useEffect(() => {
    if (!isLive || isFiltered || isExport()) return;
    const timer = window.setInterval(() => {
      const lastChunk = Math.floor(Math.max(0, total - base - 1) / PAGE);
      if (!document.hidden && chunks.current.get(lastChunk) !== null) {
        chunks.current.delete(lastChunk);
        void readChunk(lastChunk);
      }
    }, 3000);
    return () => window.clearInterval(timer);
  }, [isLive, isFiltered, total, base, readChunk]);

  const want = useCallback((top: number, bottom: number) => {
    if (isFiltered) {
      if (bottom >= found.lines.length - 30) void loadMore();
      return;
    }
    for (let chunk = Math.floor(top / PAGE); chunk <= Math.floor(bottom / PAGE); chunk += 1) void readChunk(chunk);
  }, [isFiltered, found.lines.length, loadMore, readChunk]);

  const count = isFiltered ? found.lines.length : Math.max(0, Math.min(WINDOW, total - base));
  const line = (index: number) => (isFiltered ? found.lines[index] : chunks.current.get(Math.floor(index / PAGE))?.[index % PAGE]);
  const all = total.toLocaleString("en");
  const message = isFiltered
    ? `${found.lines.length.toLocaleString("en")} found${found.next === null ? ` in all ${all}` : `; searched ${found.searched.toLocaleString("en")} of ${all}`}`
    : total > WINDOW ? `rows ${(base + 1).toLocaleString("en")} to ${(base + count).toLocaleString("en")} of ${all}` : `${all} rollouts`;
  return { count, total, line, want, loadMore, hasMore: found.next !== null, isLoading, message, error };
}
