// The results of an audit of measures, and of a shipment.
import { bytes, fixed, visible } from "../format";
import { copy, Mark } from "../parts/ui";
import { link } from "../router";

interface Finding {
  measure: string;
  message: string;
  advice?: string;
  rollout?: string;
  is_grave?: boolean;
}

export function AuditSummary({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const findings = (summary.audit as Finding[] | undefined) ?? [];
  const measures = Object.entries((summary.measures as Record<string, number> | undefined) ?? {});
  const leftOut = (summary.left_out as string[] | undefined) ?? [];
  return (
    <div className="stack">
      <p className={`notice ${findings.length ? "bad" : leftOut.length ? "warn" : "good"}`}>
        <b>{findings.length ? `${findings.length} ${findings.length === 1 ? "finding" : "findings"}.` : "Nothing found."}</b>{" "}
        {String(summary.judgements ?? 0)} judgements of {measures.length} {measures.length === 1 ? "measure" : "measures"} on {String(summary.cases ?? 0)} cases, of answers by players that know nothing.
      </p>
      {findings.length ? (
        <div className="card">
          {findings.map((each) => (
            <div className="fold-row" key={each.measure + each.message}>
              <span className="row"><Mark passed={false} /><b className={each.is_grave ? "bad" : ""}>{visible(each.measure)}</b></span>
              <p>{visible(each.message)} {each.rollout ? <a className="text" href={link(["run", run, "rollout", each.rollout])}>a rollout that shows it</a> : null}</p>
              <p className="soft">{visible(each.advice ?? "")}</p>
            </div>
          ))}
        </div>
      ) : null}
      <div className="card">
        <table className="plain">
          <thead><tr><th>Measure</th><th>Weight</th><th>Findings</th></tr></thead>
          <tbody>
            {measures.map(([name, weight]) => <tr key={name}><td><b>{visible(name)}</b></td><td className="num">{weight}</td><td className="num">{findings.filter((each) => each.measure === name).length}</td></tr>)}
          </tbody>
        </table>
      </div>
      {leftOut.map((each) => <p className="notice warn" key={each}>{visible(each)}</p>)}
    </div>
  );
}

interface Artefact {
  name: string;
  path: string;
  size: number;
  gap?: { mean: number; kl: number } | null;
  validation?: { likeness?: string; mean_reward?: number } | null;
  warning?: string;
}

export function ShipSummary({ summary }: { summary: Record<string, unknown> }) {
  const artefacts = (summary.artefacts as Artefact[] | undefined) ?? [];
  const verdict = String(summary.verdict ?? "");
  const commands = Object.entries((summary.commands as Record<string, string> | undefined) ?? {});
  const tone = verdict === "equal" || verdict === "checked" ? "good" : verdict === "cannot tell" ? "warn" : "bad";
  return (
    <div className="stack">
      <p className={`notice ${tone}`}><b style={{ textTransform: "capitalize" }}>{visible(verdict)}.</b> {visible(String(summary.sentence ?? ""))}</p>
      {summary.problem ? <p className="notice bad">{visible(String(summary.problem))}</p> : null}
      {artefacts.length ? (
        <div className="card scroll-x">
          <table className="plain">
            <thead><tr><th>File</th><th>Size</th><th>Mean gap</th><th>KL</th><th>On validation cases</th></tr></thead>
            <tbody>
              {artefacts.map((each) => (
                <tr key={each.path}>
                  <td className="mono">{visible(each.path)}{each.warning ? <span className="warn" style={{ display: "block" }}>{visible(each.warning)}</span> : null}</td>
                  <td className="num">{bytes(each.size)}</td>
                  <td className="num">{each.gap ? each.gap.mean.toExponential(1) : "–"}</td>
                  <td className="num">{each.gap ? each.gap.kl.toExponential(1) : "–"}</td>
                  <td>{each.validation?.mean_reward === undefined ? "–" : `${each.validation.likeness ?? ""} ${fixed(each.validation.mean_reward)}`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {commands.length ? (
        <div className="card">
          <header><h2>Run it</h2></header>
          {commands.map(([program, command]) => (
            <div className="fold-row row" key={program}><span className="faint" style={{ minWidth: 90 }}>{visible(program)}</span><code className="grow foreign">{visible(command)}</code><button className="button quiet" onClick={() => copy(command, "the command")}>Copy</button></div>
          ))}
        </div>
      ) : null}
    </div>
  );
}
