// All runs, newest first; more are loaded while scrolling.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { call, isExport, type Schemas, useCall } from "../api";
import { ago, duration, fixed, oneLine, when } from "../format";
import { Choice, Empty, Loading, Problem, Sparkline, State, useKeys, useNarrow } from "../parts/ui";
import { go, link, setParams, usePlace } from "../router";
import { useShared } from "../shared";

type Line = Schemas["RunLine"];
const PAGE = 50;
const STATES = ["running", "queued", "completed", "failed", "stopped"];
const KINDS = ["train", "eval", "check", "prove", "audit", "ship"];

export function RunsScreen() {
  const { session } = useShared();
  const place = usePlace();
  const state = place.params.get("state") ?? "";
  const kind = place.params.get("kind") ?? "";
  const environment = place.params.get("environment") ?? "";
  const query = useMemo(
    () => ({ ...(state ? { states: [state] } : {}), ...(kind ? { kind } : {}), ...(environment ? { environment } : {}), count: PAGE }),
    [state, kind, environment],
  );
  const first = useCall<Schemas["RunPage"]>("run.list", query, 4);
  const { lines, loadMore, hasMore } = usePages(first.data, query);
  const trends = useTrends(lines);
  const [selected, select] = useState(0);
  const [chosen, choose] = useState<string[]>([]);
  const scroller = useRef<HTMLDivElement>(null);
  const isNarrow = useNarrow();
  const rows = useVirtualizer({ count: lines.length, getScrollElement: () => scroller.current, estimateSize: () => (isNarrow ? 66 : 38), overscan: 12 });
  const items = rows.getVirtualItems();
  const last = items[items.length - 1]?.index ?? 0;
  useEffect(() => {
    if (hasMore && last >= lines.length - 15) loadMore();
  }, [last, lines.length, hasMore, loadMore]);
  const move = (by: number) => {
    const next = Math.max(0, Math.min(lines.length - 1, selected + by));
    select(next);
    rows.scrollToIndex(next);
  };
  const open = (line: Line | undefined) => line && go(link(["run", line.run]));
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: (event) => (event.preventDefault(), move(1)),
    ArrowUp: (event) => (event.preventDefault(), move(-1)),
    Enter: () => open(lines[selected]),
    x: () => lines[selected] && toggle(lines[selected].run),
    "/": (event) => (event.preventDefault(), document.getElementById("environment")?.focus()),
  });
  const toggle = (run: string) => choose((now) => (now.includes(run) ? now.filter((each) => each !== run) : [...now, run].slice(-8)));
  return (
    <>
      <div className="title">
        <h1>Runs</h1>
        <span className="faint cut mono wide-only" title={session.runs}>{session.runs}</span>
        <span className="grow" />
        {isExport() ? null : (
          <div className="filters" role="search">
            <input
              id="environment" className="field" placeholder="Environment" aria-label="Environment" defaultValue={environment} key={environment}
              onKeyDown={(event) => event.key === "Enter" && setParams(place, { environment: event.currentTarget.value })}
              onBlur={(event) => event.currentTarget.value !== environment && setParams(place, { environment: event.currentTarget.value })}
            />
            <Choice label="State" value={state} options={STATES} onChange={(value) => setParams(place, { state: value })} />
            <Choice label="Kind" value={kind} options={KINDS} onChange={(value) => setParams(place, { kind: value })} />
          </div>
        )}
        {chosen.length > 1 ? (
          <a className="button primary" href={link(["overlay"], { runs: chosen.join(",") })}>
            Overlay {chosen.length} runs
          </a>
        ) : null}
      </div>
      {first.error ? <Problem error={first.error} /> : null}
      {first.isLoading ? <Loading /> : null}
      {first.data && !lines.length ? (
        <Empty title={state || kind || environment ? "No run matches these filters." : "No runs yet."}>
          <p>
            Start one with <code>sparring train my_agent</code>. It appears here at once.
          </p>
        </Empty>
      ) : (
        <div className="grid-table runs-grid" role="table" aria-label="Runs" aria-rowcount={hasMore ? -1 : lines.length}>
          <div className="grid-head" role="row">
            {["", "Run", "Kind", "State", "Environment", "Model", "Progress", "Reward", "Started", "Time"].map((name, at) => (
              <span key={at} role="columnheader" className={at > 7 ? "right" : ""}>{name || <span className="hidden-label">Choose</span>}</span>
            ))}
          </div>
          <div className="scroll" ref={scroller} style={{ maxHeight: "calc(100vh - 150px)" }} tabIndex={0} role="rowgroup" aria-label="List of runs">
            <div style={{ height: rows.getTotalSize(), position: "relative" }} role="presentation">
              {items.map((item) => {
                const line = lines[item.index]!;
                return (
                  <div
                    key={line.run} role="row" className="grid-row" aria-selected={item.index === selected} data-index={item.index} ref={isNarrow ? rows.measureElement : undefined}
                    style={{ position: "absolute", left: 0, right: 0, transform: `translateY(${item.start}px)` }}
                    onClick={() => open(line)}
                  >
                    <span role="cell" onClick={(event) => event.stopPropagation()}>
                      <input type="checkbox" aria-label={`Choose ${line.run}`} checked={chosen.includes(line.run)} onChange={() => toggle(line.run)} />
                    </span>
                    <span role="cell" className="cut">
                      <a href={link(["run", line.run])} onClick={(event) => event.stopPropagation()}><b style={{ fontWeight: 550 }}>{line.run}</b></a>
                      {line.message ? <span className="faint" title={oneLine(line.message)}> — {oneLine(line.message, 90)}</span> : null}
                    </span>
                    <span role="cell" className="soft narrow-hide">{line.kind}</span>
                    <span role="cell"><State state={line.state} /></span>
                    <span role="cell" className="cut soft narrow-hide">{oneLine(line.environment)}</span>
                    <span role="cell" className="cut soft narrow-hide">{oneLine(line.model) || "–"}</span>
                    <span role="cell" className="narrow-hide"><Progress line={line} /></span>
                    <span role="cell" className="row narrow-hide" style={{ gap: 6 }}>
                      <span className="num" style={{ width: 34 }}>{fixed(line.reward)}</span>
                      <Sparkline values={trends[line.run]} width={64} />
                    </span>
                    <span role="cell" className="right soft num cut narrow-hide" title={`${line.author}, ${when(line.created)}`}>{line.author === "owner" ? "" : `${oneLine(line.author, 40)}, `}{ago(line.created)}</span>
                    <span role="cell" className="right soft num narrow-hide">{timeOf(line)}</span>
                    <span role="cell" className="narrow-only soft num">{[line.kind, line.reward === null || line.reward === undefined ? "" : `reward ${fixed(line.reward)}`, ago(line.created), timeOf(line)].filter(Boolean).join(" · ")}</span>
                  </div>
                );
              })}
            </div>
          </div>
        </div>
      )}
    </>
  );
}

/** How long a run took, or how long it will take at the pace so far. */
function timeOf(line: Line): string {
  if (line.state === "running" && line.step && line.steps) return `${duration((line.minutes * 60 * (line.steps - line.step)) / line.step)} left`;
  return duration(line.minutes * 60);
}

function Progress({ line }: { line: Line }) {
  if (line.step === null || line.step === undefined || !line.steps) return <span className="faint">–</span>;
  return (
    <span className="row" style={{ gap: 8 }}>
      <span className="bar grow"><i style={{ width: `${Math.min(100, (100 * line.step) / line.steps)}%` }} /></span>
      <span className="num soft" style={{ fontSize: 12 }}>{line.step}/{line.steps}</span>
    </span>
  );
}

/** The first page, refreshed, and the pages after it, loaded once each. */
function usePages(first: Schemas["RunPage"] | undefined, query: object) {
  const [more, setMore] = useState<{ query: object; lines: Line[]; next: string | null }>({ query, lines: [], next: null });
  const isLoading = useRef(false);
  const own = more.query === query ? more : { query, lines: [], next: null };
  const next = own.next ?? first?.next ?? "";
  const loadMore = useCallback(() => {
    if (isLoading.current || !next) return;
    isLoading.current = true;
    call<Schemas["RunPage"]>("run.list", { ...query, after: next })
      .then((page) => setMore((now) => ({ query, lines: [...(now.query === query ? now.lines : []), ...page.runs], next: page.next })))
      .catch(() => undefined)
      .finally(() => {
        isLoading.current = false;
      });
  }, [query, next]);
  const lines = useMemo(() => {
    const known = new Set(first?.runs.map((line) => line.run));
    return [...(first?.runs ?? []), ...own.lines.filter((line) => !known.has(line.run))];
  }, [first, own.lines]);
  return { lines, loadMore, hasMore: Boolean(next) };
}

function useTrends(lines: Line[]): Record<string, number[]> {
  const [trends, setTrends] = useState<Record<string, number[]>>({});
  const requested = useRef(new Map<string, number | null | undefined>());
  useEffect(() => {
    const wanted = lines.filter((line) => line.kind === "train" && (!requested.current.has(line.run) || requested.current.get(line.run) !== line.step));
    if (!wanted.length) return;
    const runs = wanted.slice(0, 100).map((line) => line.run);
    for (const line of wanted.slice(0, 100)) requested.current.set(line.run, line.step);
    call<Schemas["Trends"]>("run.trends", { runs }).then(
      (answer) => setTrends((now) => ({ ...now, ...(answer.rewards as Record<string, number[]>) })),
      () => undefined,
    );
  }, [lines]);
  return trends;
}
