// Several runs compared with the first: results, settings, and curves on one plot.
import { useMemo, useState } from "react";
import { canAsk, type Schemas, useCall } from "../api";
import { commonMessages, differenceOf } from "../differences";
import { fixed, oneLine, visible } from "../format";
import { Chart, color, type Line } from "../parts/Chart";
import { Conversation } from "../parts/Conversation";
import { Crumbs } from "../parts/Crumbs";
import { Empty, Mark, Problem } from "../parts/ui";
import { Verdicts } from "../parts/Verdicts";
import { questionOf, recordPassed, type RolloutRecord } from "../records";
import { link, usePlace } from "../router";
import { useShared } from "../shared";
import { type Difference, Differences } from "./ProofSummary";

const FIRST = ["reward", "validation/reward", "live_groups", "entropy", "grad_norm", "kl", "completion_tokens", "truncated", "tokens_per_second"];

export function OverlayScreen() {
  const runs = (usePlace().params.get("runs") ?? "").split(",").filter(Boolean).slice(0, 8);
  const [curves, setCurves] = useState<Record<string, Schemas["Curves"]>>({});
  const [isAll, showAll] = useState(false);
  const { session } = useShared();
  const compared = useCall<Schemas["Comparison"]>("run.compare", runs.length > 1 ? { runs } : null);
  const differences = (compared.data?.differences ?? []) as unknown as Compared[];
  return (
    <div className="overlay">
      <Crumbs items={[["Runs", []], ["Overlay", null]]} />
      <div className="title">
        <h1>{runs.length} runs compared</h1>
        <span className="grow" />
        {runs.length === 2 && session.role !== "viewer" && canAsk("rollout.pairs", runs[0]!) ? <a className="button" href={link(["run", runs[0]!, "pairs"], { other: runs[1]! })}>Compare them case by case</a> : null}
      </div>
      <div className="legend" style={{ marginBottom: 10 }}>
        {runs.map((run, place) => <span key={run}><i style={{ background: color(place) }} /><a href={link(["run", run])}>{visible(run)}</a></span>)}
      </div>
      {compared.error ? <Problem error={compared.error} /> : null}
      {compared.isLoading && runs.length > 1 ? <p className="faint" role="status">The runs are being compared case by case.</p> : null}
      {compared.data ? <Comparison runs={runs} differences={differences} settings={compared.data.settings as unknown as [string, unknown[]][]} /> : null}
      {runs.map((run) => <Reader key={run} run={run} onRead={(found) => setCurves((now) => (now[run] === found ? now : { ...now, [run]: found }))} />)}
      <Plots runs={runs} curves={curves} isAll={isAll} />
      <p style={{ marginTop: 12 }}><button className="button" aria-pressed={isAll} onClick={() => showAll(!isAll)}>All metrics</button></p>
      {differences.map((each) => <Flips key={each.run} compared={each} first={runs[0]!} />)}
    </div>
  );
}

interface Place {
  run: string;
  log: string;
  player: string;
}

interface Flip {
  case: string;
  before: number;
  after: number;
  base: string;
  trained: string;
}

interface Compared {
  run: string;
  basis: string;
  standing: string;
  sentence: string;
  reward: Difference | null;
  measures: Record<string, Difference>;
  flips: Flip[];
  sides?: [Place, Place];
}

const TONES: Record<string, string> = { better: "good", worse: "bad" };
const MOST_FLIPS = 12;

/** What each later run does better or worse than the first, and the settings that differ. */
function Comparison({ runs, differences, settings }: { runs: string[]; differences: Compared[]; settings: [string, unknown[]][] }) {
  return (
    <div className="stack compared">
      {differences.map((each) => (
        <section className="stack" key={each.run} aria-label={`${each.run} compared with ${runs[0]}`}>
          <h2 className="part">{visible(each.run)} compared with {visible(runs[0]!)}</h2>
          <p className={`notice ${each.reward ? (TONES[each.standing] ?? "warn") : ""}`}>{each.reward ? <><b style={{ textTransform: "capitalize" }}>{each.standing}</b>: </> : null}{visible(each.sentence)}</p>
          {each.reward ? <div className="card scroll-x" tabIndex={0} role="region" aria-label={`Differences of ${each.run}`}><header><span className="faint">{visible(each.basis)}</span></header><Differences rows={{ reward: each.reward, ...each.measures }} /></div> : null}
        </section>
      ))}
      <h2 className="part">Settings that differ</h2>
      {settings.length ? (
        <div className="card scroll-x" tabIndex={0} role="region" aria-label="Settings that differ">
          <table className="plain">
            <thead><tr><th>Setting</th>{runs.map((run) => <th key={run}>{visible(run)}</th>)}</tr></thead>
            <tbody>{settings.map(([name, values]) => <tr key={name}><td className="mono">{visible(name)}</td>{values.map((value, at) => <td className="mono" key={at}>{oneLine(JSON.stringify(value) ?? "", 200)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      ) : <p className="faint">None.</p>}
      <h2 className="part">Curves</h2>
    </div>
  );
}

/** The cases that came out differently in one run and the first; only the owner gets them. */
function Flips({ compared, first }: { compared: Compared; first: string }) {
  const { flips, sides, run } = compared;
  if (!flips.length || !sides) return null;
  return (
    <section className="stack" aria-label={`Cases that flipped in ${run}`}>
      <h2 className="part">Cases that flipped from {visible(first)} to {visible(run)}: {flips.length}{flips.length > MOST_FLIPS ? `, of which ${MOST_FLIPS} are shown` : ""}</h2>
      {flips.slice(0, MOST_FLIPS).map((flip) => <Flipped key={flip.case} flip={flip} sides={sides} />)}
    </section>
  );
}

/** A case that came out differently, with a rollout of both runs. */
function Flipped({ flip, sides }: { flip: Flip; sides: [Place, Place] }) {
  const first = useRollout(sides[0], flip.base);
  const second = useRollout(sides[1], flip.trained);
  if (!first || !second) return null;
  const common = commonMessages([first, second]);
  return (
    <section className="stack flip" aria-label={flip.case}>
      <p><span className="num soft">{fixed(flip.before)} → {fixed(flip.after)}</span> <bdi className="foreign"><b>{oneLine(questionOf(first) || flip.case)}</b></bdi></p>
      <div className="two">
        {[first, second].map((record, at) => (
          <article className="card" key={at}>
            <header><Mark passed={recordPassed(record)} /><h3 className="cut grow">{visible(sides[at]!.run)}</h3><span className="num">reward <b>{fixed(record.reward)}</b></span></header>
            <Verdicts judgements={record.judgements} />
            <div style={{ borderTop: "1px solid var(--line)" }}><Conversation record={record} common={common} differs={at ? differenceOf(record, first, common) : undefined} other={at ? first : undefined} /></div>
          </article>
        ))}
      </div>
    </section>
  );
}

function useRollout({ run, log, player }: Place, rollout: string): RolloutRecord | undefined {
  const id = player ? `${player}/${rollout}` : rollout;
  const shown = useCall<Schemas["ShownRollout"]>("rollout.show", { run, rollout: id, log: log === "rollouts" ? undefined : log });
  return shown.data?.record as unknown as RolloutRecord | undefined;
}

function Reader({ run, onRead }: { run: string; onRead: (found: Schemas["Curves"]) => void }) {
  const found = useCall<Schemas["Curves"]>("run.curves", { run }, 5);
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
