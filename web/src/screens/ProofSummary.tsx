// The verdict of a proof: intervals of the differences, and what still fails.
import { fixed, percent, signed, visible } from "../format";
import { link } from "../router";

interface Difference {
  before: number;
  after: number;
  value: number;
  low: number;
  high: number;
  cases: number;
  differing: number;
  smallest_effect?: number;
  is_guard?: boolean;
}

export function ProofSummary({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const reward = summary.reward as Difference | undefined;
  const measures = Object.entries((summary.measures as Record<string, Difference> | undefined) ?? {});
  const verdict = String(summary.verdict ?? "");
  const fails = (summary.still_fails as { measure: string; count: number; reason: string }[] | undefined) ?? [];
  const tone = verdict === "better" ? "good" : verdict === "worse" ? "bad" : "warn";
  return (
    <div className="stack">
      <div className={`notice ${tone}`}>
        <b style={{ textTransform: "capitalize" }}>{verdict}</b>{summary.sentence ? <>: {visible(String(summary.sentence))}</> : null}
      </div>
      <div className="card scroll-x">
        <header>
          <h2>Before and after, on {String(summary.cases ?? "?")} {String(summary.split ?? "")} cases{summary.rollouts ? ` × ${String(summary.rollouts)} rollouts of each model` : ""}</h2>
          <span className="grow" />
          <a className="button" href={link(["run", run, "pairs"])}>See what changed</a>
        </header>
        <table className="plain">
          <thead><tr><th>Measure</th><th>Before</th><th>After</th><th>Difference</th><th style={{ minWidth: 240 }}>95 % interval</th><th>Cases that differ</th></tr></thead>
          <tbody>
            {reward ? <DifferenceRow name="reward" each={reward} isMean /> : null}
            {measures.map(([name, each]) => <DifferenceRow key={name} name={name} each={each} />)}
          </tbody>
        </table>
      </div>
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
    </div>
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
