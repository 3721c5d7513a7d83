// Several runs on one plot.
import { useMemo, useState } from "react";
import { type Schemas, useCall } from "../api";
import { visible } from "../format";
import { Chart, color, type Line } from "../parts/Chart";
import { Crumbs } from "../parts/Crumbs";
import { Empty, Problem } from "../parts/ui";
import { link, usePlace } from "../router";
import { useShared } from "../shared";

const FIRST = ["reward", "validation/reward", "live_groups", "entropy", "grad_norm", "kl", "completion_tokens", "truncated", "tokens_per_second"];

export function OverlayScreen() {
  const runs = (usePlace().params.get("runs") ?? "").split(",").filter(Boolean).slice(0, 8);
  const [curves, setCurves] = useState<Record<string, Schemas["Curves"]>>({});
  const [isAll, showAll] = useState(false);
  const { session } = useShared();
  return (
    <>
      <Crumbs items={[["Runs", []], ["Overlay", null]]} />
      <div className="title">
        <h1>{runs.length} runs on one plot</h1>
        <span className="grow" />
        {runs.length === 2 && session.role !== "viewer" ? <a className="button" href={link(["run", runs[0]!, "pairs"], { other: runs[1]! })}>Compare them case by case</a> : null}
      </div>
      <div className="legend" style={{ marginBottom: 10 }}>
        {runs.map((run, place) => <span key={run}><i style={{ background: color(place) }} /><a href={link(["run", run])}>{visible(run)}</a></span>)}
      </div>
      {runs.map((run) => <Reader key={run} run={run} onRead={(found) => setCurves((now) => (now[run] === found ? now : { ...now, [run]: found }))} />)}
      <Plots runs={runs} curves={curves} isAll={isAll} />
      <p style={{ marginTop: 12 }}><button className="button" aria-pressed={isAll} onClick={() => showAll(!isAll)}>All metrics</button></p>
    </>
  );
}

function Reader({ run, onRead }: { run: string; onRead: (found: Schemas["Curves"]) => void }) {
  const found = useCall<Schemas["Curves"]>("run.curves", { run, points: 1000 }, 5);
  if (found.data) queueMicrotask(() => onRead(found.data!));
  return found.error ? <Problem error={found.error} /> : null;
}

function Plots({ runs, curves, isAll }: { runs: string[]; curves: Record<string, Schemas["Curves"]>; isAll: boolean }) {
  const { theme } = useShared();
  const steps = useMemo(() => [...new Set(Object.values(curves).flatMap((each) => each.steps))].sort((a, b) => a - b), [curves]);
  const names = useMemo(() => {
    const known = new Set(Object.values(curves).flatMap((each) => Object.keys(each.columns)));
    const rates = [...known].filter((name) => name.startsWith("pass_rate/"));
    const chosen = [...FIRST.filter((name) => known.has(name)), ...rates];
    return isAll ? [...chosen, ...[...known].filter((name) => !chosen.includes(name)).sort()] : chosen;
  }, [curves, isAll]);
  const plots = useMemo(() => names.map((name) => {
    const lines = runs.map((run, place): Line => {
      const found = curves[run];
      const at = new Map(found?.steps.map((step, number) => [step, found.columns[name]?.[number] ?? null]));
      return { label: run, values: steps.map((step) => at.get(step) ?? null), color: color(place), isDots: name.startsWith("validation/") };
    }).filter((line) => line.values.some((value) => value !== null));
    return { name, lines };
  }), [names, runs, curves, steps]);
  if (!steps.length) return <Empty title="These runs have no metrics." />;
  return <div className="charts">{plots.filter((plot) => plot.lines.length).map((plot) => <Chart key={plot.name} title={plot.name} steps={steps} lines={plot.lines} theme={theme} height={170} />)}</div>;
}
