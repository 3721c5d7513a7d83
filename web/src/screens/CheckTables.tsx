// What a check says beside its verdict: measures that can move, cases, models, the planned training.
import { duration, number, oneLine, percent, visible } from "../format";

type Summary = Record<string, unknown>;

interface Movement {
  name: string;
  movement: string;
  scored: number;
  passed: number;
  live: number;
}

export function Movements({ summary }: { summary: Summary }) {
  const rows = Array.isArray(summary.measures) ? (summary.measures as Movement[]) : [];
  if (!rows.length) return null;
  return (
    <div className="card scroll-x" tabIndex={0} role="region" aria-label="Measures that carry reward">
      <header><h2>Measures that carry reward</h2></header>
      <table className="plain">
        <thead><tr><th>Measure</th><th>Passed</th><th>Differs in groups of {String(summary.group_size ?? "")}</th><th>Training</th></tr></thead>
        <tbody>{rows.map((each) => <tr key={each.name}><td><b>{visible(each.name)}</b></td><td className="num">{each.passed} of {each.scored}</td><td className="num">{percent(each.live)}</td><td>{visible(each.movement)}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

interface CaseRow {
  case: string;
  question?: string;
  rollouts: number;
  passed: number;
  low: number;
  high: number;
}

const MOST_CASES = 200;

export function Cases({ summary }: { summary: Summary }) {
  const rows = Array.isArray(summary.cases) ? (summary.cases as CaseRow[]).filter((each) => each.rollouts) : [];
  if (!rows.length) return null;
  const place = (value: number) => `${100 * value}%`;
  return (
    <div className="card scroll-x" tabIndex={0} role="region" aria-label="Cases">
      <header><h2>Pass rate of each case</h2><span className="faint">with its 95 % interval</span></header>
      <table className="plain">
        <tbody>
          {rows.slice(0, MOST_CASES).map((each) => (
            <tr key={each.case}>
              <td><bdi>{oneLine(each.question || each.case, 90)}</bdi></td>
              <td className="num right" style={{ whiteSpace: "nowrap" }}>{each.passed} of {each.rollouts}</td>
              <td style={{ width: "40%", minWidth: 120 }}>
                <div className="interval accent" role="img" aria-label={`${percent(each.low)} to ${percent(each.high)}`} title={`${percent(each.low)} … ${percent(each.high)}`}>
                  <span className="axis" />
                  <span className="span" style={{ left: place(each.low), width: place(each.high - each.low) }} />
                  <span className="point" style={{ left: place(each.passed / each.rollouts) }} />
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_CASES ? <p className="body faint">{rows.length - MOST_CASES} more cases</p> : null}
    </div>
  );
}

interface ModelRow {
  name: string;
  cases: number;
  rollouts: number;
  correct: number;
  accuracy: number | null;
  any_correct: number | null;
  is_learner?: boolean;
  message?: string;
}

export function Models({ summary }: { summary: Summary }) {
  const rows = (summary.models as ModelRow[] | undefined) ?? [];
  if (!rows.length) return null;
  return (
    <div className="card scroll-x" tabIndex={0} role="region" aria-label="Models">
      <header><h2>Models</h2></header>
      <table className="plain">
        <thead><tr><th>Model</th><th>Cases</th><th>Rollouts</th><th>Correct</th><th>Accuracy</th><th>Cases with a correct rollout</th></tr></thead>
        <tbody>
          {rows.map((each) => (
            <tr key={each.name}>
              <td><b>{visible(each.name)}</b>{each.is_learner ? <span className="faint"> to be trained</span> : null}{each.message ? <span className="warn" style={{ display: "block" }}>{visible(each.message)}</span> : null}</td>
              <td className="num">{each.cases}</td><td className="num">{each.rollouts}</td><td className="num">{each.correct}</td><td className="num">{percent(each.accuracy)}</td><td className="num">{percent(each.any_correct)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Amount {
  value: number;
  low: number;
  high: number;
}

interface EstimateRow {
  seconds_per_step: Amount;
  hours: Amount;
  sampled_tokens: Amount;
  cost?: Amount | null;
  proof_hours?: number;
  plan: string;
  memory: number;
  memory_of: string;
  parity: string;
  basis: string;
}

export function Estimate({ summary }: { summary: Summary }) {
  const found = summary.estimate as EstimateRow | null | undefined;
  if (!found) return null;
  const hours = (value: number) => duration(3600 * value);
  const { seconds_per_step: step, hours: all, cost } = found;
  const rows: [string, string][] = [
    ["plan", visible(found.plan)],
    ["one step", `${duration(step.value)} (${duration(step.low)} … ${duration(step.high)})`],
    ["the training", `${hours(all.value)} (${hours(all.low)} … ${hours(all.high)})`],
    ["the proof after it", hours(found.proof_hours ?? 0)],
    ["tokens sampled", number(found.sampled_tokens.value)],
    ["memory", `${(found.memory / 2 ** 30).toFixed(1)} GiB of ${visible(found.memory_of)}`],
  ];
  if (cost) rows.push(["cost", `${cost.value.toFixed(2)} (${cost.low.toFixed(2)} … ${cost.high.toFixed(2)})`]);
  return (
    <div className="card">
      <header><h2>Estimate of the training</h2></header>
      <dl className="facts body">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      <p className="faint" style={{ padding: "0 14px 12px" }}>From {visible(found.basis)}. {visible(found.parity)}</p>
    </div>
  );
}
