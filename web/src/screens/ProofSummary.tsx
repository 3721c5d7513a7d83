// The verdict of a proof: intervals of the differences, and what still fails.
import { fixed, percent, signed, visible } from "../format";
import { link } from "../router";
import { Audit, Unsandboxed } from "./Summaries";

export interface Difference {
  before: number;
  after: number;
  value: number;
  low: number;
  high: number;
  cases: number;
  differing: number;
  smallest_effect?: number;
  mcnemar?: number | null;
  is_guard?: boolean;
}

export function ProofSummary({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const reward = summary.reward as Difference | undefined;
  const measures = Object.entries((summary.measures as Record<string, Difference> | undefined) ?? {});
  const verdict = String(summary.verdict ?? "");
  const fails = (summary.still_fails as { measure: string; count: number; reason: string }[] | undefined) ?? [];
  const also = summary.also as Difference | null | undefined;
  const tone = verdict === "better" && summary.is_good !== false ? "good" : verdict === "worse" ? "bad" : "warn";
  return (
    <div className="stack">
      <div className={`notice ${tone}`}>
        <b style={{ textTransform: "capitalize" }}>{verdict}</b>{summary.sentence ? <>: {visible(String(summary.sentence))}</> : null}
      </div>
      <p className="soft">
        The base model ({visible(String(summary.model ?? "the agent's own"))}) and the trained one (<a className="text" href={link(["run", String(summary.training ?? "")])}>{visible(String(summary.training ?? ""))}</a>, {visible(String(summary.checkpoint ?? "").split("/").pop() ?? "")}) played the same cases.
      </p>
      <Unsandboxed summary={summary} />
      <div className="card scroll-x" tabIndex={0} role="region" aria-label="Before and after">
        <header>
          <h2>Before and after, on {String(summary.cases ?? "?")} {String(summary.split ?? "")} cases{summary.rollouts ? ` × ${String(summary.rollouts)} rollouts of each model` : ""}</h2>
          <span className="grow" />
          <a className="button" href={link(["run", run, "pairs"])}>See what changed</a>
        </header>
        <Differences rows={{ ...(reward ? { reward } : {}), ...Object.fromEntries(measures), ...(also ? { [`${String(summary.also_environment)} (second suite)`]: also } : {}) }} />
      </div>
      <SmallPrint summary={summary} reward={reward} />
      {fails.length ? (
        <div className="card">
          <header><h2>What still fails</h2><span className="faint">each with one example</span></header>
          <table className="plain"><tbody>
            {fails.slice(0, 12).map((each) => (
              <tr key={each.measure + each.reason}><td className="num right" style={{ width: 60 }}>{each.count}×</td><td style={{ width: 160 }}>{visible(each.measure)}</td><td className="soft">{visible(each.reason)}</td></tr>
            ))}
          </tbody></table>
        </div>
      ) : null}
      <Audit summary={summary} run={run} />
    </div>
  );
}

function SmallPrint({ summary, reward }: { summary: Record<string, unknown>; reward: Difference | undefined }) {
  const regressed = (summary.regressed as string[] | undefined) ?? [];
  const lines = [
    reward?.smallest_effect === undefined ? "" : `The interval is a bootstrap over cases. ${reward.differing} of ${reward.cases} cases came out differently; the smallest effect that these cases detect with 80 % power is ${fixed(reward.smallest_effect, 3)}.`,
    reward?.mcnemar === undefined || reward.mcnemar === null ? "" : `Exact McNemar test: p = ${fixed(reward.mcnemar, 4)}.`,
    Number(summary.picked_from ?? 1) > 1 ? `Corrected for ${String(summary.picked_from)} candidates that were compared on these cases.` : "",
    summary.proofs_on_these_cases ? `Run number ${String(summary.proofs_on_these_cases)} that measured these cases.` : "",
    regressed.length ? `Got worse without being trained on: ${regressed.map(visible).join(", ")}.` : "",
  ];
  return <div className="soft">{lines.filter(Boolean).map((line) => <p key={line}>{line}</p>)}</div>;
}

/** Differences by name, with their intervals. */
export function Differences({ rows }: { rows: Record<string, Difference> }) {
  return (
    <table className="plain">
      <thead><tr><th>Measure</th><th>Before</th><th>After</th><th>Difference</th><th style={{ minWidth: 240 }}>95 % interval</th><th>Cases that differ</th></tr></thead>
      <tbody>{Object.entries(rows).map(([name, each]) => <DifferenceRow key={name} name={name} each={each} isMean={name === "reward"} />)}</tbody>
    </table>
  );
}

function DifferenceRow({ name, each, isMean }: { name: string; each: Difference; isMean?: boolean }) {
  const show = isMean ? (value: number) => fixed(value) : percent;
  const tone = each.low > 0 ? "good" : each.high < 0 ? "bad" : "soft";
  const place = (value: number) => `${50 + 50 * Math.max(-1, Math.min(1, value))}%`;
  return (
    <tr>
      <td><b>{visible(name)}</b>{each.is_guard ? <span className="badge" style={{ marginLeft: 6 }}>guard</span> : null}</td>
      <td className="num">{show(each.before)}</td>
      <td className="num">{show(each.after)}</td>
      <td className={`num ${tone}`}><b>{signed(each.value)}</b></td>
      <td>
        <div className={`interval ${tone}`} role="img" aria-label={`${fixed(each.low)} to ${fixed(each.high)}`} title={`${fixed(each.low, 3)} … ${fixed(each.high, 3)}`}>
          <span className="axis" /><span className="zero" style={{ left: "50%" }} />
          <span className="span" style={{ left: place(each.low), width: `calc(${place(each.high)} - ${place(each.low)})` }} />
          <span className="point" style={{ left: place(each.value) }} />
        </div>
        <span className="num faint" style={{ fontSize: 12 }}>{signed(each.low)} … {signed(each.high)}</span>
      </td>
      <td className="num">{each.differing} of {each.cases}</td>
    </tr>
  );
}
