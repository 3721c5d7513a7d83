// The results of an audit of measures, and of a shipment; what proofs and checks share with them.
import { bytes, duration, fixed, visible } from "../format";
import { copy, Mark } from "../parts/ui";
import { link } from "../router";

interface Finding {
  measure: string;
  message: string;
  advice?: string;
  rollout?: string;
  is_grave?: boolean;
}

/** What the audit of the measures found, in an audit, a check or a proof. */
export function Findings({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const findings = (summary.audit as Finding[] | null | undefined) ?? [];
  const leftOut = (summary.left_out as string[] | undefined) ?? [];
  return (
    <>
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
      {leftOut.map((each) => <p className="notice warn" key={each}>{visible(each)}</p>)}
    </>
  );
}

/** The audit as a part of a check or a proof; nothing if it was not made. */
export function Audit({ summary, run }: { summary: Record<string, unknown>; run: string }) {
  const findings = summary.audit as Finding[] | null | undefined;
  if (!findings) return null;
  return (
    <section className="stack" aria-label="Audit of the measures">
      <h2 className="part">Audit of the measures</h2>
      {findings.length ? null : <p className="soft">Nothing was found: null players do not pass, and each measure gives the same verdict when it runs again.</p>}
      <Findings summary={summary} run={run} />
    </section>
  );
}

export function Unsandboxed({ summary }: { summary: Record<string, unknown> }) {
  return summary.unsandboxed ? <p className="notice warn">Code that the model wrote ran without a sandbox (unsandboxed=true).</p> : null;
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
      <Unsandboxed summary={summary} />
      <Findings summary={summary} run={run} />
      <div className="card">
        <table className="plain">
          <thead><tr><th>Measure</th><th>Weight</th><th>Findings</th></tr></thead>
          <tbody>
            {measures.map(([name, weight]) => <tr key={name}><td><b>{visible(name)}</b></td><td className="num">{weight}</td><td className="num">{findings.filter((each) => each.measure === name).length}</td></tr>)}
          </tbody>
        </table>
      </div>
    </div>
  );
}

interface Played {
  likeness?: string;
  mean_reward?: number | null;
  seconds?: number;
}

interface Artefact {
  name: string;
  path: string;
  size: number;
  prompts?: { conversations: number };
  gap?: { mean: number; largest: number; kl: number } | null;
  validation?: Played | null;
  server?: string;
  servers?: Record<string, unknown>;
  warning?: string;
}

interface HeldOut {
  artefact: string;
  likeness: string;
  sentence?: string;
  against_base: string;
  looks: number;
  rollouts: number;
  margin: number;
}

export function ShipSummary({ summary }: { summary: Record<string, unknown> }) {
  const artefacts = (summary.artefacts as Artefact[] | undefined) ?? [];
  const verdict = String(summary.verdict ?? "");
  const commands = Object.entries((summary.commands as Record<string, string> | undefined) ?? {});
  const warnings = (summary.warnings as string[] | undefined) ?? [];
  const heldOut = summary.held_out as HeldOut | null | undefined;
  const tone = verdict === "shipped" || verdict === "tried" ? "good" : "bad";
  return (
    <div className="stack">
      <p className={`notice ${tone}`}><b style={{ textTransform: "capitalize" }}>{visible(verdict)}.</b> {visible(String(summary.sentence ?? ""))}</p>
      {summary.problem ? <p className="notice bad">{visible(String(summary.problem))}</p> : null}
      {summary.comparison ? <p>{visible(String(summary.comparison))}.</p> : null}
      <p className="soft">
        Checkpoint {visible(String(summary.checkpoint ?? ""))} of run <a className="text" href={link(["run", String(summary.training ?? "")])}>{visible(String(summary.training ?? ""))}</a>, trained from {visible(String(summary.model ?? ""))}; its proof: {visible(String(summary.proof_verdict ?? ""))}.
      </p>
      <Unsandboxed summary={summary} />
      {warnings.map((each) => <p className="notice warn" key={each}>{visible(each)}</p>)}
      {artefacts.length ? (
        <div className="card scroll-x" tabIndex={0} role="region" aria-label="Files compared with the checkpoint">
          <header><h2>Files compared with the checkpoint</h2></header>
          <table className="plain">
            <thead><tr><th>File</th><th>Size</th><th>Prompts</th><th>Mean gap</th><th>Largest</th><th>KL</th><th>Reward, validation</th><th>Server</th></tr></thead>
            <tbody>
              {artefacts.map((each) => (
                <tr key={each.path}>
                  <td className="mono">{visible(each.path)}{each.warning ? <span className="warn" style={{ display: "block" }}>{visible(each.warning)}</span> : null}</td>
                  <td className="num">{bytes(each.size)}</td>
                  <td className="num">{each.prompts?.conversations ?? "–"}</td>
                  <td className="num">{each.gap ? each.gap.mean.toExponential(1) : "–"}</td>
                  <td className="num">{each.gap ? each.gap.largest.toExponential(1) : "–"}</td>
                  <td className="num">{each.gap ? each.gap.kl.toExponential(1) : "–"}</td>
                  <td>{each.validation ? <>{visible(each.validation.likeness ?? "")} <span className="num">{fixed(each.validation.mean_reward)}</span>{each.validation.seconds ? <span className="faint num"> in {duration(each.validation.seconds)}</span> : null}</> : "not played"}</td>
                  <td className="soft">{[each.server, ...Object.keys(each.servers ?? {})].filter(Boolean).map((name) => visible(name!)).join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      {heldOut ? (
        <div className="card">
          <header><h2>Held-out cases, played by {visible(heldOut.artefact)}</h2></header>
          <div className="body">
            <p><b>{visible(heldOut.likeness)}</b>: {visible(heldOut.sentence ?? "")}</p>
            <p>Compared with the base: {visible(heldOut.against_base)}.</p>
            <p className="faint">Margin {heldOut.margin}; {heldOut.rollouts} rollouts; candidates measured on these cases so far: {heldOut.looks}.</p>
          </div>
        </div>
      ) : null}
      {commands.length ? (
        <div className="card">
          <header><h2>Run it</h2></header>
          {commands.map(([program, command]) => (
            <div className="fold-row row wrap command" key={program}><span className="faint" style={{ minWidth: 90 }}>{visible(program)}</span><code className="foreign">{visible(command)}</code><button className="button quiet" onClick={() => copy(command, "the command")}>Copy</button></div>
          ))}
        </div>
      ) : null}
    </div>
  );
}
