// The curves of a training; the figures and verdict of other kinds.
import { type Schemas, useCall } from "../api";
import { number, percent, visible, words } from "../format";
import type { Live } from "../live";
import { Chart, type Line, wilson } from "../parts/Chart";
import { pinsOf, Timeline } from "../parts/Timeline";
import { Empty, Fold, Problem } from "../parts/ui";
import { link } from "../router";
import { useShared } from "../shared";
import { OutcomesCard } from "./Outcomes";
import { ProofSummary } from "./ProofSummary";
import { Cases, Estimate, Models, Movements } from "./CheckTables";
import { Audit, AuditSummary, ShipSummary, Unsandboxed } from "./Summaries";

export interface Plot {
  title: string;
  lines: Line[];
  range?: [number, number];
  unit?: string;
}

type Wanted = [title: string, names: string[], unit?: string];
const PLAIN: Wanted[] = [
  ["Live groups", ["live_groups", "teaching_groups"], "share"],
  ["Parsed, called a tool", ["parse_rate", "call_rate"], "share"],
  ["Cut off, unscored, failed", ["truncated", "unscored", "tool_failures"]],
  ["Entropy", ["entropy"]],
  ["KL", ["kl"]],
  ["Gradient norm", ["grad_norm"]],
  ["Loss", ["loss"]],
  ["Learning rate", ["learning_rate"]],
  ["Sampled tokens per second", ["tokens_per_second"]],
  ["Tokens of a completion", ["completion_tokens"]],
  ["Sampler and trainer differ by", ["sampling/logp_difference", "sampler_gap", "gap"]],
];

export function plotsOf(live: Live): { main: Plot[]; more: Plot[] } {
  const used = new Set(["step", "attempt", "epoch", "num_tokens", "rollouts", "groups", "reward_min", "reward_max"]);
  const has = (name: string) => live.names.includes(name);
  const line = (name: string, label = words(name)): Line => {
    used.add(name);
    return { label, values: live.column(name) };
  };
  const plots: Plot[] = [];
  if (has("reward")) {
    const reward = line("reward", "training");
    const checked = has("validation/reward") ? [{ ...line("validation/reward", "validation"), isDots: true }] : [];
    plots.push({ title: "Reward", lines: [reward, ...checked] });
  }
  const rates = (prefix: string, count: string, title: string) => {
    const names = live.names.filter((name) => name.startsWith(prefix));
    if (!names.length) return;
    const counts = live.column(count);
    const lines = names.map((name) => {
      const made = line(name, visible(name.slice(prefix.length)));
      const spans = made.values.map((value, place) => wilson(value, counts[place]));
      return { ...made, low: spans.map((span) => span?.[0] ?? null), high: spans.map((span) => span?.[1] ?? null), isDots: prefix.startsWith("validation") };
    });
    plots.push({ title, lines, range: [0, 1] });
  };
  rates("pass_rate/", "rollouts", "Pass rate");
  rates("validation/pass_rate/", "validation/rollouts", "Validation pass rate");
  for (const [title, names, unit] of PLAIN) {
    const found = names.filter(has);
    if (found.length) plots.push({ title, lines: found.map((name) => line(name)), ...(unit === "share" ? { range: [0, 1] as [number, number] } : unit ? { unit } : {}) });
  }
  const grouped = (test: (name: string) => boolean, title: string, unit?: string) => {
    const names = live.names.filter((name) => test(name) && !used.has(name)).slice(0, 8);
    if (names.length) plots.push({ title, lines: names.map((name) => line(name)), ...(unit ? { unit } : {}) });
  };
  grouped((name) => /^(seconds|cpu_seconds|time\/|seconds\/)/.test(name), "Where the time goes", " s");
  grouped((name) => /^(dead|replaced|failed_replacements|failures|endings)\//.test(name), "Groups without a gradient, by cause");
  const rest = live.names.filter((name) => !used.has(name)).map((name): Plot => ({ title: name, lines: [line(name)] }));
  return { main: plots, more: rest };
}

export function OverviewTab({ about, live }: { about: Schemas["ShownRun"]; live: Live }) {
  const { theme } = useShared();
  if (about.kind !== "train") return <Figures about={about} live={live} />;
  if (!live.steps.length) {
    return live.hasEnded ? <Empty title="This training has no metrics." /> : <Empty title="No step yet.">The curves appear with the first step.</Empty>;
  }
  const { main, more } = plotsOf(live);
  const last = live.steps[live.steps.length - 1]!;
  const marks = pinsOf(live.events, last);
  const links = Object.entries(about.links ?? {});
  return (
    <>
      <OutcomesCard run={about.run} steps={live.steps.length} />
      <Timeline pins={marks} first={Math.min(0, live.steps[0]!)} last={last} />
      <div className="charts">
        {main.map((plot) => (
          <Chart key={plot.title} {...plot} steps={live.steps} marks={marks} theme={theme} />
        ))}
      </div>
      <p className="chart-gap">
        <span>Dashed lines are the events of the time line; bands are 95 % intervals.<span className="on-screen"> Drag to zoom, double-click to zoom out.</span></span>
        {links.map(([name, address]) => (
          <a key={name} className="text" href={/^https?:/.test(address) ? address : undefined} rel="noreferrer noopener" target="_blank">{name}</a>
        ))}
      </p>
      {more.length ? (
        <Fold title={`${more.length} more metrics`}>
          <div className="charts" style={{ marginTop: 10 }}>
            {more.map((plot) => (
              <Chart key={plot.title} {...plot} steps={live.steps} marks={marks} theme={theme} height={110} />
            ))}
          </div>
        </Fold>
      ) : null}
    </>
  );
}

function Figures({ about, live }: { about: Schemas["ShownRun"]; live: Live }) {
  const results = useCall<Schemas["Results"]>("run.results", { run: about.run, rows: 0 }, live.hasEnded ? 0 : 5);
  if (results.error) return <Empty title="No results yet.">{results.error.message}</Empty>;
  if (!results.data) return null;
  const summary = results.data.summary as Record<string, unknown>;
  if (!Object.keys(summary).length) return <Empty title="No results.">{visible(results.data.message ?? "")}</Empty>;
  if (about.kind === "audit") return <AuditSummary summary={summary} run={about.run} />;
  if (about.kind === "ship") return <ShipSummary summary={summary} />;
  if (about.kind === "prove") return <ProofSummary summary={summary} run={about.run} />;
  return (
    <div className="stack">
      {"verdict" in summary ? <CheckVerdict summary={summary} run={about.run} /> : null}
      <Unsandboxed summary={summary} />
      <Movements summary={summary} />
      <OutcomesCard run={about.run} steps={0} />
      <Cases summary={summary} />
      <Models summary={summary} />
      <Estimate summary={summary} />
      <MeasureTable summary={(summary.figures as Record<string, unknown>) ?? summary} />
      <Audit summary={summary} run={about.run} />
      <Fold title="All figures, as JSON">
        <pre className="card log">{visible(JSON.stringify(summary, null, 2).slice(0, 200_000))}</pre>
      </Fold>
      {results.error ? <Problem error={results.error} /> : null}
    </div>
  );
}

interface Note {
  what: string;
  message: string;
  advice?: string;
  rollout?: string;
  is_grave?: boolean;
}

function CheckVerdict({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const notes = (summary.notes as Note[] | undefined) ?? [];
  const verdict = String(summary.verdict);
  const live = (summary.live as { group_size: number; value: number; low: number; high: number }[] | undefined) ?? [];
  return (
    <div className="card">
      <header>
        <h2>Verdict</h2>
        <span className={`badge ${verdict === "broken" ? "bad" : verdict.includes("learn") ? "good" : "warn"}`}>{verdict}</span>
        <span className="soft">{visible(String(summary.why ?? ""))}</span>
      </header>
      <div className="body stack">
        {notes.map((note) => (
          <div key={note.what + note.message}>
            <b className={note.is_grave ? "bad" : ""}>{visible(note.message)}</b>
            <p className="soft">{visible(note.advice ?? "")} {note.rollout ? <a className="text" href={link(["run", run, "rollout", note.rollout])}>a rollout that shows it</a> : null}</p>
          </div>
        ))}
        {live.length ? (
          <div>
            <h3>Groups that would carry a gradient, by group size</h3>
            <table className="plain" style={{ maxWidth: 460 }}>
              <tbody>
                {live.map((each) => (
                  <tr key={each.group_size}>
                    <td className="num">{each.group_size}</td>
                    <td style={{ width: "60%" }}><span className="bar" style={{ display: "block", height: 8 }}><i style={{ width: `${each.value * 100}%` }} /></span></td>
                    <td className="num right">{percent(each.value)} <span className="faint">({percent(each.low)}–{percent(each.high)})</span></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ) : null}
      </div>
    </div>
  );
}

interface Figure {
  weight?: number;
  judged?: number;
  pass_rate?: { value: number; low: number; high: number };
  mean_score?: number;
  reasons_for_failing?: { count: number; reason: string }[];
}

function MeasureTable({ summary }: { summary: Record<string, unknown> }) {
  const measures = Array.isArray(summary.measures) ? {} : ((summary.measures as Record<string, Figure> | undefined) ?? {});
  const names = Object.keys(measures);
  if (!names.length) return null;
  const failures = Object.entries((summary.tool_failures as Record<string, number> | undefined) ?? {});
  const play = {
    "calls parsed": percent(summary.parse_rate as number | null),
    "rollouts with a tool call": percent(summary.called_a_tool as number | null),
    "cut off": percent(summary.truncated as number | null),
    "tool failures": failures.map(([name, count]) => `${count} ${visible(name)}`).join(", ") || "0",
    "not scored": `${number((summary.unscored as number | undefined) ?? 0)} of ${number(summary.rollouts as number)}`,
  };
  return (
    <div className="card scroll-x" tabIndex={0} role="region" aria-label="Measures">
      <header><h2>Measures</h2><span className="faint">{number(summary.rollouts as number)} rollouts, reward {number(summary.reward as number)}</span></header>
      <table className="plain">
        <thead><tr><th>Measure</th><th>Weight</th><th>Judged</th><th>Pass rate, 95 % interval</th><th>Why it fails, each with one example</th></tr></thead>
        <tbody>
          {names.map((name) => {
            const each = measures[name]!;
            return (
              <tr key={name}>
                <td><b>{visible(name)}</b></td>
                <td className="num">{number(each.weight)}</td>
                <td className="num">{number(each.judged)}</td>
                <td className="num">{percent(each.pass_rate?.value)} <span className="faint">{percent(each.pass_rate?.low)}–{percent(each.pass_rate?.high)}</span></td>
                <td className="soft">{(each.reasons_for_failing ?? []).slice(0, 3).map((reason) => <div key={reason.reason}>{reason.count}× {visible(reason.reason)}</div>)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <dl className="facts body">
        {Object.entries(play).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
      </dl>
    </div>
  );
}
