// Events, settings, checkpoints and logs of a run.
import { useEffect, useMemo, useRef, useState } from "react";
import { type Schemas, useCall } from "../api";
import { bytes, fixed, visible, when, words } from "../format";
import type { Live } from "../live";
import { copy, Empty, Loading, Problem } from "../parts/ui";

const TECHNICAL = new Set(["format", "event", "time", "author", "message", "attempt", "epoch", "runs_at_once"]);
const LOUD: Record<string, string> = { warning: "warn", failed: "bad", restart: "warn", stop_requested: "warn", checkpoint: "good", completed: "good" };

export function EventsTab({ live }: { live: Live }) {
  if (!live.events.length) return <Empty title="No events yet." />;
  return (
    <div className="card">
      {[...live.events].reverse().map((event, place) => {
        const facts = Object.entries(event).filter(([name]) => !TECHNICAL.has(name));
        return (
          <div className="event" key={live.events.length - place}>
            <span className="faint num">{when(event.time)}</span>
            <span><span className={`badge ${Object.hasOwn(LOUD, event.event) ? LOUD[event.event] : ""}`}>{words(event.event === "state" ? String(event.state) : event.event)}</span></span>
            <span>
              {event.message ? <bdi className="foreign">{visible(event.message)}</bdi> : null}
              {facts.length ? <span className="faint mono" style={{ display: "block" }}>{facts.filter(([name]) => name !== "state").map(([name, value]) => `${name}=${visible(typeof value === "string" ? value : JSON.stringify(value))}`).join("  ")}</span> : null}
            </span>
          </div>
        );
      })}
    </div>
  );
}

export function SettingsTab({ run }: { run: string }) {
  const details = useCall<Schemas["RunDetails"]>("run.details", { run });
  const [wanted, setWanted] = useState("");
  const [hasDefaults, showDefaults] = useState(false);
  if (details.error) return <Problem error={details.error} />;
  if (!details.data) return <Loading />;
  const shown = details.data.settings.filter((each) => (hasDefaults || wanted || each.source !== "defaults") && each.name.includes(wanted));
  return (
    <div className="stack">
      <div className="filters">
        <input className="field" placeholder="Filter settings" aria-label="Filter settings" value={wanted} onChange={(event) => setWanted(event.target.value)} />
        <button className="button" aria-pressed={hasDefaults} onClick={() => showDefaults(!hasDefaults)}>Defaults, too</button>
        <span className="faint mono cut">{visible(details.data.target)}</span>
      </div>
      <div className="card scroll-x" tabIndex={0} role="region" aria-label={`Settings of ${run}`}>
        <table className="plain">
          <thead><tr><th>Setting</th><th>Value</th><th>Source</th><th>Lock</th></tr></thead>
          <tbody>
            {shown.map((each) => (
              <tr key={each.name}>
                <td className="mono">{visible(each.name)}</td>
                <td className="mono">{visible(JSON.stringify(each.value) ?? "")}</td>
                <td className={each.source === "defaults" ? "faint" : "soft"}>{visible(each.source)}</td>
                <td className="soft">{each.locked_by ? <span className="badge warn">locked by {visible(each.locked_by)}</span> : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {shown.length ? null : <Empty title="Every setting has its default." />}
      </div>
      <Origin details={details.data} />
    </div>
  );
}

/** What is needed to reproduce the run: digests of its inputs and versions of packages. */
function Origin({ details }: { details: Schemas["RunDetails"] }) {
  const facts = [["code", details.code_digest ?? ""], ...Object.entries(details.digests ?? {}), ...Object.entries(details.versions ?? {})].filter(([, value]) => value);
  if (!facts.length) return null;
  return (
    <details className="fold">
      <summary>To reproduce it: digests and versions</summary>
      <dl className="facts origin">{facts.map(([name, value]) => <div key={name}><dt>{visible(String(name))}</dt><dd className="mono">{visible(String(value))}</dd></div>)}</dl>
    </details>
  );
}

export function CheckpointsTab({ run, live }: { run: string; live: Live }) {
  const found = useCall<Schemas["Checkpoints"]>("run.checkpoints", { run }, live.hasEnded ? 0 : 5);
  if (found.error) return <Problem error={found.error} />;
  if (!found.data) return <Loading />;
  if (!found.data.checkpoints.length) return <Empty title="No checkpoint yet." />;
  return (
    <div className="card scroll-x" tabIndex={0} role="region" aria-label={`Checkpoints of ${run}`}>
      <table className="plain">
        <thead><tr><th>Step</th><th>Validation reward</th><th>Size</th><th>Path</th><td /></tr></thead>
        <tbody>
          {found.data.checkpoints.map((each) => (
            <tr key={each.step}>
              <td className="num"><b>{each.step}</b> {each.is_best ? <span className="badge good">best</span> : null}</td>
              <td className="num">{fixed(each.score, 3)}</td>
              <td className="num soft">{bytes(each.bytes)}</td>
              <td className="mono soft">{visible(each.path)}</td>
              <td className="right"><button className="button quiet" onClick={() => copy(each.path, "the path")}>Copy</button></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function LogsTab({ about, isLive }: { about: Schemas["ShownRun"]; isLive: boolean }) {
  const [process, setProcess] = useState("");
  const [attempt, setAttempt] = useState<number>();
  const log = useCall<Schemas["Log"]>("run.logs", { run: about.run, lines: 400, process: process || undefined, attempt }, isLive ? 2 : 0);
  const end = useRef<HTMLPreElement>(null);
  const attempts = useMemo(() => Array.from({ length: about.attempts }, (_, place) => place + 1), [about.attempts]);
  useEffect(() => {
    const node = end.current;
    if (node && node.scrollHeight - node.scrollTop - node.clientHeight < 200) node.scrollTop = node.scrollHeight;
  }, [log.data?.text]);
  useEffect(() => {
    if (end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [process, attempt, log.data === undefined]);
  return (
    <div className="stack">
      <div className="filters" role="group" aria-label="Process">
        {log.data?.there_are.map((name) => (
          <button key={name} className="button" aria-pressed={name === log.data?.process} onClick={() => setProcess(name)}>{visible(name)}</button>
        ))}
        {attempts.length > 1 ? (
          <select className="field" aria-label="Attempt" value={attempt ?? attempts.length} onChange={(event) => setAttempt(Number(event.target.value))}>
            {attempts.map((each) => <option key={each} value={each}>attempt {each}</option>)}
          </select>
        ) : null}
        {isLive ? <span className="badge accent live"><span className="dot" />live</span> : null}
      </div>
      {about.processes.length ? (
        <div className="card scroll-x" tabIndex={0} role="region" aria-label="Processes">
          <table className="plain">
            <thead><tr><th>Process</th><th>State</th><th>Pid</th><th>Host</th></tr></thead>
            <tbody>{about.processes.map((each) => <tr key={each.name + each.pid}><td>{visible(each.name)}</td><td className="soft">{each.state}</td><td className="num soft">{each.pid}</td><td className="soft">{visible(each.host)}</td></tr>)}</tbody>
          </table>
        </div>
      ) : null}
      {log.error ? <Problem error={log.error} /> : null}
      {log.data ? <div className="card"><pre className="log foreign" ref={end} tabIndex={0} aria-label="Log">{visible(log.data.text) || "(empty)"}</pre></div> : <Loading />}
    </div>
  );
}
